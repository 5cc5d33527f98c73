"""What precision=tf32 declares."""

from typing import Any

from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.precision.base.option import PrecisionOption
from manyheads.runner.run.errors import Unavailable


class TF32Option(PrecisionOption):
    """Products have 10 bits of mantissa."""

    tolerance = 1e-2

    def unavailable(self) -> str | None:
        return None if hardware.gpu_names() else f"{NO_GPU}. Use precision=fp32 or precision=bf16"

    def complete(self, config: dict[str, Any]) -> None:
        if config["trainer"]["device"] == "cpu":
            raise Unavailable("precision=tf32 is a mode of GPUs. Set trainer.device=cuda or precision=fp32.")
