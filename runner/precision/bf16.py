"""Declarations of precision=bf16."""

from manyheads.runner.machine import hardware
from manyheads.runner.precision.precision_option import PrecisionOption


class BF16Option(PrecisionOption):
    """Autocast to bfloat16, which has 7 bits of mantissa."""

    def note(self) -> str:
        return "" if hardware.gpu_names() or hardware.bfloat16() else f"slower than fp32: {hardware.EMULATED}"

    def autocast(self, *, on_gpus: bool) -> str | None:
        return "bfloat16"
