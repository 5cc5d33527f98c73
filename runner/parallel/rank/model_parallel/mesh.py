"""parallel=fsdp, tensor, pipeline and mesh: one mesh of ranks, of which each option's YAML has some dimensions."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.parallel.mesh_layout import filled
from manyheads.runner.parallel.rank.model_parallel.sharding import Sharding
from manyheads.runner.parallel.rank.model_parallel.splitting import Splitting
from manyheads.runner.parallel.rank.model_parallel.staging import Staging
from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


class MeshParallel(ModelParallel):
    """Ranks that share a model. The first four arguments are a Layout's sizes, of which one may be "auto".

    The others are the settings of Sharding, Splitting and Staging; None: the option does not shard, split or stage.
    """

    def __init__(
        self,
        *,
        pipeline: int | str = 1,
        replicate: int | str = 1,
        shard: int | str = 1,
        tensor: int | str = 1,
        units: str | list[str] | None = None,
        reshard: str = "",
        prefetch: int | str = "",
        param_dtype: str = "",
        reduce_dtype: str = "",
        recompute: bool | str = False,
        plan: str | Mapping[str, str] | None = None,
        sequence: bool = False,
        schedule: str | None = None,
        stages: str | list[str] = "",
        stages_per_rank: int = 1,
        world_size: int,
        **position: Any,
    ):
        asked = {"pipeline": pipeline, "replicate": replicate, "shard": shard, "tensor": tensor}
        sizes = filled(asked, ranks=world_size)
        sharding = Sharding(units, reshard, prefetch, param_dtype, reduce_dtype, recompute) if units else None
        needs_shards = shard == "auto" or sizes.shard > 1 or (sharding is not None and sharding.changes_anything)
        super().__init__(
            sizes=sizes,
            sharding=sharding if needs_shards else None,
            splitting=Splitting(plan, sequence) if plan is not None else None,
            staging=Staging(schedule, stages, stages_per_rank) if schedule is not None else None,
            world_size=world_size,
            **position,
        )
