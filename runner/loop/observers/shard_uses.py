"""Whether the ranks that shard weights compute with the same ones, in the same order.

They gather weights and reduce gradients together, in operations that do not say of which module they are. If the model
skips a module on one rank, or a weight gets no gradient there, the others' shards count as those of another weight:
unnoticed, where both have the same size.
"""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.guards.guard import GradientObserver
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.update import Update

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


class ShardUses(Observer):
    """Counts what this rank uses, and raises ConfigurationError on all ranks if they have used different weights.

    It compares whenever log windows were exchanged, hence before each checkpoint, and after evaluations.
    """

    def __init__(self, update: Update):
        self._update, self._parallel = update, cast("ModelParallel", update.parallel)
        self._counts, self._order = Counter[str](), 0

    def start(self, progress: Progress) -> None:
        for name, module in self._parallel.unwrap(self._update.model).named_modules():
            if isinstance(module, FSDPModule):
                used = partial(self._note, f"{name or 'the model'} is called")
                module.register_forward_pre_hook(torch.compiler.disable(used))  # type: ignore[attr-defined]
        self._update.guards.insert(0, GradientObserver(self._note_missing))

    def exchanged(self, progress: Progress, by_rank: Tensor) -> None:
        self._compare()

    def evaluated(self, split: str, samples: Any) -> None:
        self._compare()

    def _note(self, use: str, *_: object) -> None:
        self._counts[use] += 1
        self._order = zlib.crc32(use.encode(), self._order)

    def _note_missing(self) -> None:
        for name, parameter in zip(self._update.names, self._update.parameters, strict=True):
            if parameter.grad is None:
                self._note(f"{name} gets no gradient")

    def _compare(self) -> None:
        stage = self._parallel.place_in.pipeline  # each has other weights
        orders = torch.full((2, self._parallel.sizes.pipeline), -math.inf, dtype=torch.float64)
        orders[:, stage] = torch.tensor([self._order, -self._order], dtype=torch.float64)
        most, least = self._parallel.reduce(orders.to(self._parallel.device), "max").tolist()
        if most == [-order for order in least]:
            return
        by_rank = self._parallel.gather((stage, self._counts))
        raise ConfigurationError(
            f"parallel: ranks have computed with different weights: {_difference(by_rank)}. They gather weights and "
            "reduce gradients together, so what they have learned since the last checkpoint is wrong. Let the model "
            "call the same modules, in the same order, for all samples; or set parallel=ddp "
            "parallel.find_unused_parameters=true.",
            key="parallel",
        )


def _difference(by_rank: Sequence[tuple[int, Counter[str]]]) -> str:
    """The first use whose number differs between two ranks of a stage, in words."""
    for rank, (stage, counts) in enumerate(by_rank):
        for other, (_, others) in enumerate(by_rank[:rank]):
            uses = [use for use in counts | others if counts[use] != others[use]] if by_rank[other][0] == stage else []
            if uses:
                return f"{uses[0]} {others[uses[0]]} times on rank {other}, and {counts[uses[0]]} times on rank {rank}"
    return "they call the same modules, but in another order"
