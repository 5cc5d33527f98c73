"""Declarations of a precision, for strategies and optimizers that depend on it, and for comparisons."""

from typing import ClassVar, NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.option import Option
from manyheads.runner.option.run_config import RunConfig


class HalfWeights(NamedTuple):
    """Half-precision weights, and therefore gradients, in terms of the config.

    ``dtype``: "float16" or "bfloat16"; ``dtype_key``, ``key``: the settings that cause it; ``other_dtype``, ``other``:
    those to choose for the other half precision, and for weights in fp32.
    """

    dtype: str
    dtype_key: str
    key: str
    other_dtype: str
    other: str


class Reloading(NamedTuple):
    """A setting after which an optimizer loads its own state. ``key``: with its value; ``other``: one without it."""

    key: str
    other: str


class PrecisionOption(Option):
    """Declarations of a precision, with cautious defaults.

    ``tolerance``: the largest relative difference between two values of the same computation. ``weights_dtype``: of
    weights in a checkpoint. ``unscales_in_backward``: whether the scale of gradients changes with each backward pass.
    """

    group = "precision"
    has_own_class = True
    tolerance: ClassVar[float] = 5e-2
    weights_dtype: ClassVar[str] = "float32"
    unscales_in_backward: ClassVar[bool] = False

    def check_run(self, run: RunConfig) -> None:
        trainer, on_gpus = run.trainer, run.on_gpus
        scales_or_copies = self.scales_gradients(on_gpus=on_gpus) or self.half_weights(on_gpus=on_gpus)
        if trainer.sam_rho is not None and (scales_or_copies or self.reloads_optimizer()):
            raise ConfigurationError.at(
                "trainer.sam_rho",
                trainer.sam_rho,
                f": its second pass needs unscaled gradients and the model's own "
                f"weights, which precision={self.name} does not have here. Set precision=bf16 or fp32.",
            )
        if trainer.verify_every and self.unscales_in_backward:
            raise ConfigurationError.at(
                "trainer.verify_every",
                trainer.verify_every,
                f" computes gradients twice, but precision={self.name} changes their scale in each computation. Set it "
                "to 0, or precision=amp.",
            )

    def autocast(self, *, on_gpus: bool) -> str | None:
        """The dtype that operations are cast to, such as "bfloat16"; None without autocast."""
        return None

    def scales_gradients(self, *, on_gpus: bool) -> bool:
        """Whether gradients are scaled until the step, to prevent underflow in fp16."""
        return False

    def half_weights(self, *, on_gpus: bool) -> HalfWeights | None:
        """The settings that make weights half precision; None if they are not."""
        return None

    def reloads_optimizer(self) -> Reloading | None:
        """The setting that makes the optimizer load its own state before its first step; None if it does not."""
        return None
