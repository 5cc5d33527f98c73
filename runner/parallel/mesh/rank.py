"""parallel=mesh: stages, copies, shards and split layers at once."""

import math
from collections.abc import Mapping
from typing import Any

from manyheads.runner.parallel.model_parallel.layout import Layout
from manyheads.runner.parallel.model_parallel.rank.sharding import Sharding
from manyheads.runner.parallel.model_parallel.rank.staging import Staging
from manyheads.runner.parallel.model_parallel.rank.strategy import ModelParallel


class MeshParallel(ModelParallel):
    """The first four are a Layout's, "auto" for what is left; the others are Sharding's, find_plan's and Staging's."""

    def __init__(
        self,
        *,
        pipeline: int | str,
        replicate: int | str,
        shard: int | str,
        tensor: int | str,
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
        world_size: int,
        **place: Any,
    ):
        sizes = {"pipeline": pipeline, "replicate": replicate, "shard": shard, "tensor": tensor}
        known = math.prod(size for size in sizes.values() if isinstance(size, int))
        layout = Layout(**{key: size if isinstance(size, int) else world_size // known for key, size in sizes.items()})
        sharding = Sharding(units, reshard, prefetch, param_dtype, reduce_dtype, recompute)
        super().__init__(
            layout=layout,
            sharding=sharding if layout.shard > 1 or sharding.changes_anything else None,
            plan=plan,
            staging=Staging(schedule, stages, stages_per_rank),
            world_size=world_size,
            **place,
        )
