"""What parallel=mesh declares."""

from typing import ClassVar

from manyheads.runner.option.rules import choice, either, whole
from manyheads.runner.parallel.model_parallel.option import ModelParallelOption

SIZE = either(whole(1), choice("auto"))


class MeshOption(ModelParallelOption):
    """A layout whose sizes multiply to the number of ranks."""

    rules: ClassVar = {"pipeline": SIZE, "shard": SIZE, "tensor": SIZE}
    color = "#882255"
    dimensions = ("pipeline", "replicate", "shard", "tensor")
    changes_gradients: ClassVar = {"param_dtype": "none", "reduce_dtype": "none"}
