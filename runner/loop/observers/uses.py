"""Whether all ranks use the same parts of a model, in the same order, as what they exchange assumes.

An exchange does not say of which weights it is. If the model takes another way on one rank, others' gradients or shards
count as those of another weight: unnoticed, where both have the same size.
"""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.guards.guard import GradientObserver
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.mesh_layout import Layout


class Uses(Observer):
    """Counts what this rank uses, and raises ConfigurationError on all ranks if they have used different parts.

    It compares whenever log windows were exchanged, hence before each checkpoint, and after evaluations. ``setting``:
    the key of what decides; ``remedy``: the last sentence of the error.
    """

    setting: str
    remedy: str

    def __init__(self, update: Update):
        self._update, self._parallel = update, update.parallel
        # Ranks of another stage of a pipeline have other weights.
        self._stages = getattr(self._parallel, "sizes", Layout()).pipeline
        self._stage = getattr(self._parallel, "place_in", Layout(0, 0, 0, 0)).pipeline
        self._counts, self._order = Counter[str](), 0

    def note(self, use: str, *_: object) -> None:
        """Count a use, such as "blocks.1 is called"."""
        self._counts[use] += 1
        self._order = zlib.crc32(use.encode(), self._order)

    def exchanged(self, progress: Progress, by_rank: Tensor) -> None:
        self._compare()

    def evaluated(self, split: str, samples: Any) -> None:
        self._compare()

    def _compare(self) -> None:
        orders = torch.full((2, self._stages), -math.inf, dtype=torch.float64)
        orders[:, self._stage] = torch.tensor([self._order, -self._order], dtype=torch.float64)
        most, least = self._parallel.reduce(orders.to(self._parallel.device), "max").tolist()
        if most != [-order for order in least]:
            difference = _difference(self._parallel.gather((self._stage, self._counts)))
            raise ConfigurationError(
                f"{self.setting}: ranks have computed with different weights: {difference}. What they have learned "
                f"since the last checkpoint is wrong, since they exchange gradients in one order. {self.remedy}",
                key=self.setting,
            )


class ShardUses(Uses):
    """The modules whose weights are gathered, and the weights whose gradients are not reduced."""

    setting = "parallel"
    remedy = (
        "Let the model call the same modules, in the same order, for all samples; or set parallel=ddp "
        "parallel.find_unused_parameters=true."
    )

    def start(self, progress: Progress) -> None:
        from torch.distributed.fsdp import FSDPModule

        for name, module in self._parallel.unwrap(self._update.model).named_modules():
            if isinstance(module, FSDPModule):
                used = partial(self.note, f"{name or 'the model'} is called")
                module.register_forward_pre_hook(torch.compiler.disable(used))  # type: ignore[attr-defined]
        self._update.guards.insert(0, GradientObserver(self._note_missing))

    def _note_missing(self) -> None:
        for name, parameter in zip(self._update.names, self._update.parameters, strict=True):
            if parameter.grad is None:
                self.note(f"{name} gets no gradient")


class TurnUses(Uses):
    """The optimizers to which a task's own step gives a turn. ``update``: a SteppingUpdate."""

    setting = "task"
    remedy = "Let the task's step yield losses for the same optimizers on all ranks: decide by context.step."

    def start(self, progress: Progress) -> None:
        self._update.guards.insert(0, GradientObserver(self._note_turn))

    def _note_turn(self) -> None:
        update: Any = self._update
        self.note(f"the optimizer {update.turn} has a turn")


def _difference(by_rank: Sequence[tuple[int, Counter[str]]]) -> str:
    """The first use whose number differs between two ranks of a stage, in words."""
    for rank, (stage, counts) in enumerate(by_rank):
        for other, (_, others) in enumerate(by_rank[:rank]):
            uses = [use for use in counts | others if counts[use] != others[use]] if by_rank[other][0] == stage else []
            if uses:
                return f"{uses[0]} {others[uses[0]]} times on rank {other}, and {counts[uses[0]]} times on rank {rank}"
    return "they use the same, but in another order"
