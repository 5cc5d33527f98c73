"""parallel=mesh: stages, copies, shards and split layers at once."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.parallel.model_parallel.layout import Layout
from manyheads.runner.parallel.model_parallel.rank.sharding import Sharding
from manyheads.runner.parallel.model_parallel.rank.splitting import Splitting
from manyheads.runner.parallel.model_parallel.rank.staging import Staging
from manyheads.runner.parallel.model_parallel.rank.strategy import ModelParallel


class MeshParallel(ModelParallel):
    """The first four are a Layout's; the others are Sharding's, Splitting's and Staging's."""

    def __init__(
        self,
        *,
        pipeline: int,
        replicate: int,
        shard: int,
        tensor: int,
        units: str | list[str],
        reshard: str,
        prefetch: int | str,
        param_dtype: str,
        reduce_dtype: str,
        recompute: bool,
        plan: str | Mapping[str, str],
        schedule: str,
        stages: str | list[str],
        stages_per_rank: int,
        sequence: bool = False,
        **place: Any,
    ):
        layout = Layout(pipeline, replicate, shard, tensor)
        sharding = Sharding(units, reshard, prefetch, param_dtype, reduce_dtype, recompute)
        super().__init__(
            layout=layout,
            sharding=sharding if layout.shard > 1 or sharding.changes_anything else None,
            splitting=Splitting(plan, sequence),
            staging=Staging(schedule, stages, stages_per_rank),
            **place,
        )
