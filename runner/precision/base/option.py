"""What a precision declares, for the strategies and optimizers that must know, and for comparisons."""

from typing import ClassVar, NamedTuple

from manyheads.runner.option.base import Option


class HalfWeights(NamedTuple):
    """Weights, and so gradients, in half precision, in the words of the config.

    ``dtype``: "float16" or "bfloat16"; ``dtype_key``, ``key``: the settings that make the weights so; ``other_dtype``,
    ``other``: those to choose for the other half precision, and for weights in fp32.
    """

    dtype: str
    dtype_key: str
    key: str
    other_dtype: str
    other: str


class PrecisionOption(Option):
    """Mixed precision, of which most is unknown.

    ``tolerance``: how far apart two values of the same computation may be, relative to their size. ``dtype``: of the
    weights as a checkpoint holds them.
    """

    has_own_class = True
    tolerance: ClassVar[float] = 5e-2
    dtype: ClassVar[str] = "float32"

    def autocast(self, *, on_gpus: bool) -> str | None:
        """The dtype that operations are cast to, such as "bfloat16"; None where nothing is cast."""
        return None

    def scales_gradients(self, *, on_gpus: bool) -> bool:
        """Whether gradients are scaled until the step, against underflow in fp16."""
        return False

    def half_weights(self, *, on_gpus: bool) -> HalfWeights | None:
        """What weights in half precision come from; None where they are not."""
        return None

    def reloads_optimizer(self) -> bool:
        """Whether the optimizer has to load its own state before its first step."""
        return False
