"""parallel=pipeline: the model's layers in stages, through which micro-batches pass."""

from typing import Any

from manyheads.runner.parallel.model_parallel.layout import Layout
from manyheads.runner.parallel.model_parallel.rank.staging import Staging
from manyheads.runner.parallel.model_parallel.rank.strategy import ModelParallel


class PipelineParallel(ModelParallel):
    """``replicate``: number of pipelines; the other options are Staging's."""

    def __init__(
        self,
        *,
        replicate: int,
        schedule: str,
        stages: str | list[str],
        stages_per_rank: int,
        world_size: int,
        **place: Any,
    ):
        super().__init__(
            layout=Layout(pipeline=world_size // replicate, replicate=replicate),
            staging=Staging(schedule, stages, stages_per_rank),
            world_size=world_size,
            **place,
        )
