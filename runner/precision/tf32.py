"""Declarations of precision=tf32."""

from manyheads.runner.errors import Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.precision.precision_option import PrecisionOption


class TF32Option(PrecisionOption):
    """Single precision, whose products have 10 bits of mantissa."""

    tolerance = 1e-2

    def unavailable(self) -> str | None:
        return None if hardware.gpu_names() else f"{NO_GPU}. Use precision=fp32 or precision=bf16"

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if not run.on_gpus:
            raise Unavailable.at("precision", "tf32", " is a mode of GPUs. Set trainer.device=cuda or precision=fp32.")
