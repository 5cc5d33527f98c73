"""What parallel=pipeline declares."""

from manyheads.runner.parallel.model_parallel.option import ModelParallelOption


class PipelineParallelOption(ModelParallelOption):
    """Stages, and perhaps several pipelines of them."""

    color = "#009e73"
    dimensions = ("replicate",)
    remainder = "pipeline"
