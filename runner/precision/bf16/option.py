"""What precision=bf16 declares."""

from manyheads.runner.precision.base.option import PrecisionOption


class BF16Option(PrecisionOption):
    """Autocast to bfloat16, which has 7 bits of mantissa."""

    def autocast(self, *, on_gpus: bool) -> str | None:
        return "bfloat16"
