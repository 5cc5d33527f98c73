"""What parallel=tensor declares."""

from manyheads.runner.parallel.model_parallel.option import ModelParallelOption


class TensorParallelOption(ModelParallelOption):
    """Groups of ranks that share the arithmetic of layers."""

    color = "#cc79a7"
    dimensions = ("replicate",)
    remainder = "tensor"
