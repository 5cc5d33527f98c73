"""The sections that every run config has, typed; conf/config.yaml has the default and the meaning of each key."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from manyheads.runner.errors import ConfigurationError


@dataclass(frozen=True)
class FixedSection:
    """A section with the same keys in every run."""

    @classmethod
    def of(cls, name: str, section: Mapping[str, Any]) -> Self:
        """The section ``name`` as it is written. Raises ConfigurationError unless its keys are this class's fields."""
        names = {declared.name for declared in fields(cls)}
        for key in names ^ section.keys():
            what = "is missing" if key in names else "is not a key of the run config"
            message = f"{name}.{key} {what}, so this config was not frozen by this version."
            raise ConfigurationError(message, key=f"{name}.{key}")
        return cls(**section)


@dataclass(frozen=True)
class ParametersSection(FixedSection):
    """The trained parameters, and their settings."""

    freeze: Sequence[str]
    freeze_epochs: Sequence[Mapping[str, Any]]
    freeze_batchnorm: bool
    norm_weight_decay: float | None
    bias_weight_decay: float | None
    layer_decay: float | None
    groups: Sequence[Mapping[str, Any]]


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
    recompute: Sequence[str]
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


@dataclass(frozen=True)
class CheckpointSection(FixedSection):
    """When checkpoints are written, which are kept, and which one a run starts from."""

    every: int | str
    format: str
    asynchronous: bool
    keep: int
    keep_every: int
    keep_hours: float
    load: str | None
    strict: bool
    resume: str | None
    monitor: str
    mirror: str | None
    mirror_wait: float | str
