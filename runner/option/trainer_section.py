"""The section of the training loop, typed, and what its keys do not allow of each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.sections import FixedSection

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record them


@dataclass(frozen=True)
class TrainerSection(FixedSection):
    """The training loop. ``device`` is "auto" until it is resolved, then "cuda" or "cpu"."""

    epochs: int | None
    max_steps: int | None
    stop_after: int | None
    evaluate_only: bool
    max_time: float | str | None
    patience: int | None
    min_delta: float
    evaluate_every: int | str
    tta: str
    limit_train: float | None
    limit_val: float | None
    overfit: int | None
    test: bool
    grad_accumulation: int
    clip_norm: float
    clip_value: float
    log_every: int
    label_smoothing: float
    mixup_alpha: float
    cutmix_alpha: float
    mix_prob: float
    mix_switch_prob: float
    aug_repeats: int
    resize_from: int | None
    resize_start: float
    resize_end: float
    resize_step: int
    ema_decay: float | None
    ema_every: int
    ema_warmup: bool
    swa_start: int | None
    sam_rho: float | None
    sam_every: int
    recompute: str | Sequence[str]
    channels_last: bool
    compile: str
    compile_units: Sequence[str]
    deterministic: bool
    detect_anomaly: bool
    on_nan: str
    device: str
    on_spike: str | None
    spike_window: int
    spike_threshold: float
    spike_span: int
    limit_test: float | None
    verify_every: int
    on_corruption: str

    def steps_in(self, updates: int) -> int:
        """The updates of the whole run: of its epochs, of ``updates`` each, or max_steps, whichever is shorter."""
        limits = (self.epochs and self.epochs * updates, self.max_steps)
        return min(limit for limit in limits if limit is not None)

    def epochs_in(self, updates: int) -> int:
        """The number of epochs, of ``updates`` each, the last of which max_steps may cut short."""
        return math.ceil(self.steps_in(updates) / max(1, updates))

    def check_keys(self) -> None:
        """Raises ConfigurationError for training features that do not work with each other."""
        if self.epochs is None and self.max_steps is None:
            raise ConfigurationError.at(
                "trainer.epochs", None, " and trainer.max_steps=null: nothing says how long to train. Set one of them."
            )
        if math.isfinite(self.clip_norm) and math.isfinite(self.clip_value):
            raise ConfigurationError.at(
                "trainer.clip_norm",
                self.clip_norm,
                f" and trainer.clip_value={self.clip_value:g} are two ways to clip gradients. Set one of them to inf.",
            )
        if self.patience is not None and self.evaluate_every == 0:
            raise ConfigurationError.at(
                "trainer.patience",
                self.patience,
                ": what checkpoint.monitor names is never measured with trainer.evaluate_every=0. Set "
                "trainer.evaluate_every=1.",
            )
        if self.resize_from is not None and self.resize_start >= self.resize_end:
            raise ConfigurationError.at(
                "trainer.resize_start",
                self.resize_start,
                f" is not before trainer.resize_end={self.resize_end}. Lower it.",
            )
        if self.on_spike is not None and self.on_nan == "skip":
            raise ConfigurationError(
                f"trainer.on_nan=skip and trainer.on_spike={self.on_spike}: the latter treats NaN and infinity as "
                "spikes. Set trainer.on_nan=error.",
                key="trainer.on_nan",
                value="skip",
            )
        self._check_compile()
        self._check_average()

    def _check_compile(self) -> None:
        """Raises ConfigurationError if torch.compile does not work with its units or accumulation."""
        if self.compile_units:
            from manyheads.runner.machine.software import too_old  # few runs need it

            if reason := too_old("2.8"):  # earlier ones compile each block, at most 8
                raise ConfigurationError(
                    f"trainer.compile_units: {reason}. Or set it to [], and compile the whole model.",
                    key="trainer.compile_units",
                )
        if self.compile_units and self.compile in ("none", *CUDA_GRAPHS):
            reason = "nothing is compiled" if self.compile == "none" else "CUDA graphs capture a whole model"
            raise ConfigurationError(
                f"trainer.compile_units: with trainer.compile={self.compile} {reason}. Set trainer.compile to default "
                "or max-autotune-no-cudagraphs, or trainer.compile_units to [].",
                key="trainer.compile_units",
            )
        if self.device == "cuda" and self.compile in CUDA_GRAPHS and self.grad_accumulation > 1:
            raise ConfigurationError.at(
                "trainer.compile",
                self.compile,
                f": its CUDA graphs overwrite the gradients of the previous micro-batch, and "
                f"trainer.grad_accumulation is {self.grad_accumulation}. Set it to 1, or trainer.compile=default or "
                "max-autotune-no-cudagraphs.",
            )

    def _check_average(self) -> None:
        if self.swa_start is None:
            return
        if self.ema_decay is not None:
            raise ConfigurationError(
                "trainer.ema_decay and trainer.swa_start cannot be combined. Set one of them to null.",
                key="trainer.ema_decay",
            )
        if self.epochs is not None and self.swa_start > self.epochs:
            raise ConfigurationError.at(
                "trainer.swa_start", self.swa_start, f" is after the last of {self.epochs} epochs. Lower it."
            )
