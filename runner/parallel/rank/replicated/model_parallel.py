"""Replicas of parallel=replicated that are a run of parallel=fsdp among themselves."""

from typing import Any

from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.rank.model_parallel.sharding import Sharding
from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel
from manyheads.runner.parallel.rank.replicated.replica import Replica

SHARDING = Sharding("auto", "after_forward", "auto", "none", "none", recompute=False)  # parallel=fsdp's defaults


class ShardedReplica(Replica, ModelParallel):
    """A replica of several ranks, over which the model is sharded; each exchanges shards with its counterparts."""

    def __init__(self, *, world_size: int, **options: Any):
        super().__init__(sizes=Layout(shard=world_size), sharding=SHARDING, world_size=world_size, **options)


def stand_in(*, shards: int, world_size: int, **position: Any) -> ModelParallel:
    """A strategy without torchft whose ranks hold the same, and exchange about as much."""
    sizes = Layout(replicate=world_size // shards, shard=shards)
    return ModelParallel(sizes=sizes, sharding=SHARDING, world_size=world_size, **position)
