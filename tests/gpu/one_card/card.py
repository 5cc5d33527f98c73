"""The card that several ranks share: strategies and precisions that are compared on it, and the overrides of each."""

import time
from dataclasses import dataclass
from pathlib import Path

STRATEGIES = {
    "ddp": ("parallel=ddp",),
    "zero1": ("parallel=zero1",),
    "local_sgd": ("parallel=local_sgd", "parallel.start=1", "parallel.period=1"),
    "ddp, compressed": ("parallel=ddp", "parallel.compression=bf16"),
    "fsdp": ("parallel=fsdp",),
    "fsdp, replicated": ("parallel=fsdp", "parallel.replicate=2"),
    "fsdp, recomputed": ("parallel=fsdp", "parallel.recompute=true"),
    "fsdp, bf16 units": ("parallel=fsdp", "parallel.param_dtype=bfloat16"),
    "tensor": ("parallel=tensor",),
    "tensor, sequence": ("parallel=tensor", "parallel.sequence=true"),
    "pipeline, gpipe": ("parallel=pipeline", "parallel.schedule=gpipe"),
    "pipeline, 1f1b": ("parallel=pipeline", "parallel.schedule=1f1b"),
    "pipeline, interleaved": ("parallel=pipeline", "parallel.schedule=interleaved", "parallel.stages_per_rank=2"),
    "mesh, pipeline x shard": ("parallel=mesh", "parallel.pipeline=2", "parallel.shard=2"),
    "mesh, shard x tensor": ("parallel=mesh", "parallel.shard=2", "parallel.tensor=2"),
}
PRECISIONS = {
    "fp64": ("precision=fp64",),
    "bf16": ("precision=bf16",),
    "fp16": ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024"),
}
OVER_GLOO = ("ddp", "zero1", "local_sgd")  # the strategies whose every exchange Gloo can do with tensors on a GPU
SHOWN = ("logger=[]", "checkpoint.every=0", "launcher.threads_per_rank=1")


@dataclass(frozen=True)
class Card:
    """``ranks``: that share it; ``backend``: nccl or gloo; ``rehearses``: on CPUs, with tiny sizes.

    ``ends``: when all checks must have ended, by time.time().
    """

    ranks: int
    backend: str
    folder: Path
    rehearses: bool
    ends: float = float("inf")

    @property
    def device(self) -> str:
        return "cpu" if self.rehearses else "cuda"

    @property
    def at_once(self) -> int:
        """Runs at the same time."""
        return 2 if self.rehearses else 4

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.ends - time.time())

    def common(self) -> tuple[str, ...]:
        """The overrides of each run of four updates by a GPT of eight blocks."""
        tokens, width = (8, 16) if self.rehearses else (64, 96)
        return (
            *("model=gpt", "model.depth=8", f"model.width={width}", "model.heads=4", f"+data.length={tokens}"),
            *("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "+data.size=128"),
            *("data.batch_size=32", "optimizer=adamw", "optimizer.lr=0.003", "trainer.epochs=1", "trainer.log_every=1"),
            *("trainer.grad_accumulation=4", "trainer.clip_norm=0.5", f"trainer.device={self.device}", *SHOWN),
        )

    def strategy(self, name: str) -> tuple[str, ...]:
        """The overrides of a name in STRATEGIES, or of "single"."""
        if name == "single":
            return ("parallel=single",)
        backend = () if self.backend == "nccl" or self.rehearses else (f"parallel.backend={self.backend}",)
        return *STRATEGIES[name], f"launcher.nproc_per_node={self.ranks}", *backend

    def overrides(self, strategy: str, precision: str) -> tuple[str, ...]:
        return *self.strategy(strategy), *PRECISIONS[precision], *self.common()

    def obstacle(self, strategy: str) -> str:
        """Why a strategy cannot run on this card; empty if it can."""
        if strategy.startswith(("mesh", "fsdp, replicated")) and self.ranks < 4:
            return f"needs 4 ranks on a card, and {self.ranks} work"
        is_served = self.rehearses or self.backend == "nccl" or strategy in ("single", *OVER_GLOO)
        return "" if is_served else "needs NCCL between ranks of one card, which did not work"


def replaced(overrides: tuple[str, ...], **values: object) -> tuple[str, ...]:
    """The overrides with these values, ``data__length=8`` for ``+data.length=8``, in the place of their own."""
    keys = {name.replace("__", "."): value for name, value in values.items()}
    return tuple(
        f"{key}={keys[key.lstrip('+')]}" if (key := override.partition("=")[0]).lstrip("+") in keys else override
        for override in overrides
    )
