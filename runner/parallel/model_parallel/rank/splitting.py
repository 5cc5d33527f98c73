"""Splits a model's layers over a tensor-parallel group as the settings say, and verifies the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from manyheads.runner.parallel.model_parallel.rank.cut import Cut
from manyheads.runner.parallel.model_parallel.rank.sequence import OFF, Passage, Watched
from manyheads.runner.parallel.model_parallel.rank.sequence_layers import own_piece
from manyheads.runner.parallel.model_parallel.rank.tensor_check import Checked
from manyheads.runner.parallel.model_parallel.rank.tensor_plan import find_plan, find_scattered
from manyheads.runner.parallel.model_parallel.rank.tensor_split import split
from manyheads.runner.run.errors import ConfigurationError

if TYPE_CHECKING:
    from manyheads.runner.parallel.model_parallel.rank.strategy import ModelParallel


@dataclass(frozen=True)
class Shared:
    """How a tensor-parallel group shares a model.

    ``cuts``: how parameters are cut, by name; ``partial``: names of the uncut parameters whose gradients have to be
    summed over the group; ``passage``: where sequences pass in pieces, None if nowhere.
    """

    cuts: dict[str, Cut]
    partial: frozenset[str] = frozenset()
    passage: Passage | None = None


@dataclass(frozen=True)
class Splitting:
    """The settings of tensor parallelism.

    ``plan``: as for find_plan; ``sequence``: whether ranks hold pieces of sequences between split layers.
    """

    plan: str | Mapping[str, str] = "auto"
    sequence: bool = False

    def apply(self, model: nn.Module, ranks: "ModelParallel") -> Shared:
        """Replace the planned layers by this rank's parts of them.

        Raises ConfigurationError if no layer can be split, or if the split model computes a different result.
        """
        plan, group, size = find_plan(model, self.plan), ranks.tensor_group, ranks.layout.tensor
        with Watched(model, find_scattered(model, self.plan, plan) if self.sequence else []) as watched:
            checked = Checked(model, plan, ranks.example().inputs, device=ranks.device)
        passage = self._passage(model, watched, checked, size) if self.sequence else None
        cuts = split(model, plan, group, rank=ranks.place_in.tensor, size=size)
        names = passage.partial(model) if passage else set()
        if passage:
            passage.apply(model, group)
        model.to(ranks.device)
        checked.compare(partial(own_piece, group=group) if passage else None)
        return Shared(cuts, frozenset(names - {*cuts}), passage)

    def _passage(self, model: nn.Module, watched: Watched, checked: Checked, size: int) -> Passage:
        if checked.failure:
            raise ConfigurationError(
                "parallel.sequence=true needs a forward pass of the whole model, to trace sequences through it, which "
                f"failed: {checked.failure}. Set parallel.sequence=false."
            )
        if not watched.calls:
            raise ConfigurationError(
                f"parallel.sequence=true: {type(model).__name__} has no repeated blocks with split layers in them. "
                f"Name modules that take sequences in parallel.plan={{blocks.*: scattered}}, {OFF}"
            )
        return watched.passage(size)
