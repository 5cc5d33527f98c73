"""parallel=fsdp: weights, gradients and optimizer state in shards, one for each device."""

from typing import Any

from manyheads.runner.parallel.model_parallel.layout import Layout
from manyheads.runner.parallel.model_parallel.rank.sharding import Sharding
from manyheads.runner.parallel.model_parallel.rank.strategy import ModelParallel


class FSDP(ModelParallel):
    """torch's FSDP2; ``replicate``: groups of ranks that each hold all shards. The other options are Sharding's."""

    def __init__(
        self,
        *,
        replicate: int,
        units: str | list[str],
        reshard: str,
        prefetch: int | str,
        param_dtype: str,
        reduce_dtype: str,
        recompute: bool,
        world_size: int,
        **place: Any,
    ):
        super().__init__(
            layout=Layout(replicate=replicate, shard=world_size // replicate),
            sharding=Sharding(units, reshard, prefetch, param_dtype, reduce_dtype, recompute),
            world_size=world_size,
            **place,
        )
