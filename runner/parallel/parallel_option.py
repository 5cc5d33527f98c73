"""Declarations of a strategy: how many processes it has, which GPUs it uses, and what it needs or refuses."""

from collections.abc import Mapping
from typing import Any, ClassVar

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import AUTO, BOOLEAN, COMMUNICATION, Tunable, always, choice, either, never, number
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import MEGABYTE, Exchanges
from manyheads.runner.parallel.mesh_layout import Layout

ROUNDED = {"fp16": 1e-2, "bf16": 5e-2}  # by parallel.compression, the difference that rounding gradients to it explains
SENT = {"none": 1.0, "fp16": 0.5, "bf16": 0.5}  # by parallel.compression, bytes sent for each byte of fp32 gradients


class ParallelOption(Option):
    """Declarations of a strategy; by default, one rank per device.

    ``one_process``: all devices belong to one rank. ``is_baseline``: other strategies are compared with it.
    ``replicates``: it copies the model anew for each forward pass. ``outlives_ranks``: it continues when a rank dies.
    ``color``: of its bars and lines in charts, such as "#0072b2"; None for any. ``is_exact``: it computes the same
    result as one process, up to rounding. ``saves_memory``: it divides the model or the optimizer's state, which rarely
    saves time, so ``tune`` does not try it first. ``mixes_communication``: its ranks communicate within their passes,
    so this time counts as computing in a time breakdown. ``changes_gradients``: keys that are meant to change the
    result, each with the value that does not. ``tolerance_of_shares``: the largest relative difference between results
    with BatchNorm's statistics over all of a batch and over a rank's share of it: 1.7 in resnet18 with shares of 16
    samples. ``own_steps``: it works with a task's own step; ``several_optimizers``: and with several optimizers.
    """

    rules: ClassVar = {
        "backend": choice("auto", "nccl", "gloo"),
        "timeout": number(above=0),
        "compression": choice("none", "fp16", "bf16"),
        "gradient_predivide_factor": number(above=0),
    }
    group = "parallel"
    without_effect = ("timeout",)
    tunable: ClassVar = {"backend": Tunable(COMMUNICATION, never("auto chooses the device's own"))}
    has_own_class = True
    one_process: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = False
    replicates: ClassVar[bool] = False
    outlives_ranks: ClassVar[bool] = False
    color: ClassVar[str | None] = None
    is_exact: ClassVar[bool] = True
    saves_memory: ClassVar[bool] = False
    mixes_communication: ClassVar[bool] = False
    changes_gradients: ClassVar[Mapping[str, Any]] = {}
    tolerance_of_shares: ClassVar[float] = 2.0
    own_steps: ClassVar[bool] = False
    several_optimizers: ClassVar[bool] = False
    backend: str = "auto"
    compression: str = "none"
    sync_batchnorm: bool = False

    def note(self) -> str:
        gpus = len(hardware.gpu_names())
        if self.one_process:
            return "one rank" + (" on the first GPU" if gpus else " on the CPU")
        return f"{gpus} ranks over nccl" if gpus else "2 CPU ranks over gloo by default"

    def check_run(self, run: RunConfig) -> None:
        self._check_training(run)
        if run.on_gpus:
            return
        if self.backend == "nccl":
            raise Unavailable.at("parallel.backend", "nccl", " needs GPUs. Set parallel.backend=gloo or auto.")
        if self.sync_batchnorm:
            raise ConfigurationError.at(
                "parallel.sync_batchnorm",
                True,
                ": SyncBatchNorm works on GPUs only. Set it to false, or choose a "
                "model without BatchNorm (model=small_cnn, convnext_tiny, vit_b_16, ...).",
            )

    def _check_training(self, run: RunConfig) -> None:
        """Refuse training features that need the same weights on every rank, or more exchanges than one an update."""
        trainer = run.trainer
        if trainer.recompute and self.mixes_communication:
            raise ConfigurationError(
                f"trainer.recompute: with parallel={self.name} ranks communicate within modules. Set it to []; "
                "parallel=fsdp and parallel=mesh have parallel.recompute instead, which may be true or selective.",
                key="trainer.recompute",
            )
        if trainer.on_spike is not None and self.outlives_ranks:
            raise ConfigurationError.at(
                "trainer.on_spike",
                trainer.on_spike,
                f": replicas of parallel={self.name} that come and go cannot agree on what is unusual. Set it to null, "
                "or parallel=ddp.",
            )
        if trainer.verify_every and (reason := self._why_no_verification()):
            raise ConfigurationError.at(
                "trainer.verify_every",
                trainer.verify_every,
                f" computes gradients twice, but parallel={self.name} {reason}.",
            )
        if self.is_exact:
            return
        if trainer.on_spike == "rollback":
            raise ConfigurationError.at(
                "trainer.on_spike",
                "rollback",
                f": ranks of parallel={self.name} have weights of their own, to which they cannot return. Set it to "
                "skip, or parallel=ddp.",
            )
        for key, value in (("ema_decay", trainer.ema_decay), ("swa_start", trainer.swa_start)):
            if value is not None:
                raise ConfigurationError.at(
                    f"trainer.{key}",
                    value,
                    f": ranks of parallel={self.name} have weights of their own, so the average of one rank says "
                    "nothing about the others. Set parallel=ddp.",
                )

    def _why_no_verification(self) -> str | None:
        """Why an update's gradients can't be computed twice, and what to set; None if they can."""
        instead = "Set it to 0, or parallel="
        if self.outlives_ranks:
            return f"exchanges each update once, with the replicas that take part then. {instead}ddp"
        if not self.is_exact:
            return f"averages weights between two updates, where nothing else may change them. {instead}ddp"
        powersgd = "carries errors from one exchange to the next. Set it to 0, or parallel.compression=none"
        return powersgd if self.compression == "powersgd" else None

    @property
    def tolerance(self) -> float:
        """The largest relative difference that rounding in its exchange of gradients explains."""
        return ROUNDED.get(self.compression, 0.0)

    def gpus_used(self, *, ranks: int) -> int:
        """How many of this machine's GPUs its ``ranks`` use: the first ones. Called only with GPUs."""
        return -(-ranks // hardware.ranks_per_gpu())

    def data_shares(self, *, ranks: int) -> int:
        """Into how many shares a batch is divided: fewer than the ranks if some ranks work on one share together.

        Raises ConfigurationError for a number of ranks that does not fit the strategy.
        """
        return ranks

    def devices(self, *, ranks: int | None, gpus: int) -> int | None:
        """The number of devices used by a finished run. ``gpus``: those that it saw, 0 for a run on CPUs."""
        return ranks

    def cause_of(self, error: str, *, unused: str) -> str:
        """Why a run failed, as far as its error tells, and what to do; may be empty.

        ``unused``: a statement that some parameters get no gradient, such as "fc.bias gets no gradient"; else empty.
        """
        return ""

    def exchanges(self, *, devices: int) -> Exchanges:
        """The communication of an update on this number of devices, by which ``scale`` predicts its time.

        Raises ConfigurationError with the reason if that cannot be predicted, or the number does not fit the strategy.
        """
        raise self.unpredictable("it does not declare what its ranks exchange (ParallelOption.exchanges)")

    def unpredictable(self, reason: str, *, key: str = "parallel", value: object = None) -> ConfigurationError:
        """The error for a strategy, or a key of it, whose time on more devices cannot be predicted."""
        setting = self.name if value is None else value
        return ConfigurationError.at(key, setting, f" cannot be predicted for other numbers of devices: {reason}.")

    def stand_in(self) -> "ParallelOption":
        """A strategy that holds and sends the same amount, if this one needs its library; else this one itself."""
        return self

    def accumulating(self, run: RunConfig) -> RunConfig:
        """A resolved config, adapted after its trainer.grad_accumulation has been changed."""
        return run


UNFINISHED = "Expected to have finished reduction"  # the beginning of torch's message


class ReplicasOption(ParallelOption):
    """Declarations of strategies whose ranks each hold a replica of the model."""

    rules: ClassVar = {"bucket_cap_mb": number(above=0), "broadcast_buffers": either(BOOLEAN, AUTO)}
    tunable: ClassVar = {
        "bucket_cap_mb": Tunable(COMMUNICATION, always(5, 25, 100)),
        "gradient_as_bucket_view": Tunable(COMMUNICATION, always(True)),
        "static_graph": Tunable(COMMUNICATION, always(True)),
        "find_unused_parameters": Tunable(COMMUNICATION, never("the model has parameters that get no gradient")),
    }

    bucket_cap_mb: float

    def exchanges(self, *, devices: int) -> Exchanges:
        if self.compression not in SENT:
            reason = "how many bytes it sends depends on the shapes of the weights"
            raise self.unpredictable(reason, key="parallel.compression", value=self.compression)
        return Exchanges(
            Layout(replicate=devices),
            overlaps=True,
            bucket_bytes=self.bucket_cap_mb * MEGABYTE,
            gradient_scale=SENT[self.compression],
        )

    def cause_of(self, error: str, *, unused: str) -> str:
        if UNFINISHED not in error:
            return ""
        if unused:
            return (
                f"{unused}, and DistributedDataParallel waits for one. Remove what is unused, or set "
                "parallel.find_unused_parameters=true."
            )
        return (
            "A parameter gets no gradient on some rank, though the baseline uses all of them. If the model skips "
            "parts of itself for some samples, set parallel.find_unused_parameters=true."
        )
