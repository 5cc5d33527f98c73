"""Declarations of precision=amp."""

from typing import ClassVar

from manyheads.runner.machine import hardware
from manyheads.runner.option.rules import choice, number, whole
from manyheads.runner.precision.precision_option import HalfWeights, PrecisionOption

AUTO = {"cuda": "float16", "cpu": "bfloat16"}


class AMPOption(PrecisionOption):
    """Autocast, or half-precision weights at level O2; float16, which has 10 bits of mantissa, is scaled."""

    rules: ClassVar = {
        "level": choice("O1", "O2"),
        "dtype": choice("auto", "float16", "bfloat16"),
        "init_scale": number(above=0),
        "growth_interval": whole(1),
    }
    level: str
    dtype: str

    def note(self) -> str:
        if hardware.gpu_names():
            return "float16 with gradient scaler"
        return "bfloat16 on CPUs, float16 with precision.dtype=float16"

    def autocast(self, *, on_gpus: bool) -> str:
        return AUTO["cuda" if on_gpus else "cpu"] if self.dtype == "auto" else self.dtype

    def scales_gradients(self, *, on_gpus: bool) -> bool:
        return self.autocast(on_gpus=on_gpus) == "float16"

    def half_weights(self, *, on_gpus: bool) -> HalfWeights | None:
        if self.level != "O2":
            return None
        dtype = self.autocast(on_gpus=on_gpus)
        other = {"float16": "bfloat16", "bfloat16": "float16"}[dtype]
        return HalfWeights(
            dtype=dtype,
            dtype_key=f"precision.dtype={self.dtype}",
            key="precision.level=O2",
            other_dtype=f"precision.dtype={other}",
            other="precision.level=O1",
        )
