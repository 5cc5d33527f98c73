"""Assigns a pipeline's stages to ranks as the settings say, and finds the weights that stages share."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import nn

from manyheads.runner.parallel.rank.model_parallel.flow import Flow, entering, follow, twin_of
from manyheads.runner.parallel.rank.model_parallel.pipeline_schedule import Pipeline
from manyheads.runner.parallel.rank.model_parallel.stages import Stages, StageWindow, choose_windows

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


@dataclass(frozen=True)
class Staging:
    """The settings of a pipeline.

    ``schedule``: as for Pipeline; ``stages``: as for choose_windows; ``stages_per_rank``: 2 or more interleave.
    """

    schedule: str
    stages: str | list[str]
    stages_per_rank: int

    def plan(self, model: nn.Module, ranks: "ModelParallel") -> "Callable[[nn.Module, Any], Piped]":
        """Decide where to cut the complete model. Raises ConfigurationError if it cannot be cut.

        Returns what then reduces the model to this rank's stages, in place, given the group of the pipeline's ranks: a
        collective operation of all ranks of the run.
        """
        twin = twin_of(model)
        flow = follow(twin, ranks.example().inputs)
        windows = choose_windows(flow, model, ranks.sizes.pipeline * self.stages_per_rank, self.stages)
        return partial(self._cut, ranks, twin, flow, windows)

    def _cut(
        self,
        ranks: "ModelParallel",
        twin: nn.Module,
        flow: Flow,
        windows: list[StageWindow],
        model: nn.Module,
        group: Any,
    ) -> "Piped":
        mine = range(ranks.place_in.pipeline, len(windows), ranks.sizes.pipeline)
        stages, passage = Stages(model, flow, windows, mine), ranks.shared.passage
        pipeline = Pipeline(
            stages,
            twin,
            schedule=self.schedule,
            group=group,
            device=ranks.device,
            carried=entering if passage is None else passage.entering,
        )
        return Piped(pipeline, stages, ranks, {name: p.numel() for name, p in twin.named_parameters()})


class Piped:
    """This rank's part of a pipeline. ``sizes``: of the complete model's parameters, by name."""

    def __init__(self, pipeline: Pipeline, stages: Stages, ranks: "ModelParallel", sizes: dict[str, int]):
        self._stages, self._size, self._sizes = stages, ranks.sizes.pipeline, sizes
        self.compute_gradients, self.evaluate = pipeline.compute_gradients, pipeline.evaluate
        # Each set of ranks that share a weight, as the first and last stage may share the embedding, needs a group; all
        # ranks must create all groups in the same order.
        sets = sorted({tuple(holders) for name in stages.holders if len(holders := self.ranks_with(name)) > 1})
        self._groups: dict[tuple[int, ...], Any] = {}
        others = ranks.world_size // self._size
        for places in sets:
            for start in range(others):
                members = [stage * others + start for stage in places]
                group = dist.new_group(members)
                if ranks.rank in members:
                    self._groups[places] = group

    def ranks_with(self, name: str) -> list[int]:
        """The ranks in the pipeline that have a parameter."""
        return sorted({number % self._size for number in self._stages.holders.get(name, {0})})

    def unlike(self) -> list[int]:
        """The ranks in the pipeline that may differ most: its ends, and those with the most and fewest parameters."""
        held = Counter(dict.fromkeys(range(self._size), 0))
        for name, size in self._sizes.items():
            held.update(dict.fromkeys(self.ranks_with(name), size))
        by_size = [stage for stage, _ in held.most_common()]
        return sorted({0, self._size - 1, by_size[0], by_size[-1]})

    def holds_alone(self, name: str) -> bool:
        return self._stages.holds(name) and len(self.ranks_with(name)) == 1

    def shared(self, names: Mapping[nn.Parameter, str]) -> list[tuple[nn.Parameter, Any]]:
        """Those of the parameters that other stages use too, each with the group of all ranks that have it."""
        groups = {parameter: self._groups.get(tuple(self.ranks_with(name))) for parameter, name in names.items()}
        return [(parameter, group) for parameter, group in groups.items() if group is not None]
