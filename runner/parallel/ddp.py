"""Declarations of parallel=ddp."""

from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import choice, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.parallel_option import ReplicasOption


class DistributedDataParallelOption(ReplicasOption):
    """Replicas, whose gradients may be sent in fewer bytes."""

    rules: ClassVar = {
        "compression": choice("none", "fp16", "bf16", "powersgd"),
        "powersgd_rank": whole(1),
        "powersgd_start": whole(2),
    }
    color = "#0072b2"
    own_steps = several_optimizers = True
    changes_gradients: ClassVar = {"compression": "none"}
    compression: str

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if self.compression == "powersgd" and run.precision.scales_gradients(on_gpus=run.on_gpus):
            raise ConfigurationError.at(
                "precision",
                run.precision.name,
                " scales fp16 gradients by a factor that changes, so the "
                "residual that parallel.compression=powersgd carries over from earlier updates would have the "
                "wrong scale. Set precision=bf16 or fp32, or parallel.compression=fp16.",
            )
