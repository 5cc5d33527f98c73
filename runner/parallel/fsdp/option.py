"""What parallel=fsdp declares."""

from typing import ClassVar

from manyheads.runner.parallel.model_parallel.option import ModelParallelOption


class FSDPOption(ModelParallelOption):
    """Shards, and perhaps several copies of all of them."""

    color = "#d55e00"
    dimensions = ("replicate",)
    remainder = "shard"
    changes_gradients: ClassVar = {"param_dtype": "none", "reduce_dtype": "none"}
