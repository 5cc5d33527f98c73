"""parallel=tensor: the layers themselves split over the ranks, all of which work on the same samples."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.parallel.model_parallel.layout import Layout
from manyheads.runner.parallel.model_parallel.rank.splitting import Splitting
from manyheads.runner.parallel.model_parallel.rank.strategy import ModelParallel


class TensorParallel(ModelParallel):
    """``replicate``: groups of ranks, each of which has all layers; ``plan``, ``sequence``: as for Splitting."""

    def __init__(
        self,
        *,
        replicate: int,
        plan: str | Mapping[str, str],
        world_size: int,
        sequence: bool = False,
        **place: Any,
    ):
        layout = Layout(replicate=replicate, tensor=world_size // replicate)
        super().__init__(layout=layout, splitting=Splitting(plan, sequence), world_size=world_size, **place)
