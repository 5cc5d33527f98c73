"""What the loop and a strategy that makes updates of its own hand to each other."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch


class Passed(NamedTuple):
    """What the forward pass of a micro-batch leaves behind, without gradients.

    ``loss``: () as the task gave it; ``scale``: by which it becomes a sum; ``samples``: their number; ``counted``: the
    number of what the loss is over; ``observed``: what the task and the metrics keep of it for their statistics.
    """

    loss: Tensor
    scale: float
    samples: int
    counted: float
    observed: Any


class MicroSteps(Protocol):
    """The plain way through one micro-batch, and its parts, for strategies that go another way."""

    def __call__(self, batch: "Batch", *, last: bool) -> Passed:
        """Forward and backward of one micro-batch; ``last``: the exchange of gradients follows."""

    def objective(self, outputs: Any, batch: "Batch") -> tuple[Tensor, Passed]:
        """What to differentiate, so that gradients add up to the update's, and what the pass leaves behind."""

    def of(self, batches: "list[Batch]") -> "MicroSteps":
        """The same for other micro-batches of the update."""

    def flattened(self, passes: list[Passed]) -> Tensor:
        """What these passes come to, (n,) float64 on the CPU; of several ranks they can be added up."""

    def unflattened(self, row: Tensor) -> Passed:
        """As one pass, which ``flattened`` rows were of."""

    def autocast(self) -> AbstractContextManager:
        """Around forward passes and ``objective``."""

    def scaled(self, objective: Tensor) -> Tensor:
        """What to call ``backward`` on."""


class Course(Protocol):
    """The run of a rank, for strategies whose ranks come and go."""

    def standing(self) -> dict[str, Any]:
        """All that another rank needs to be where this one is, between two updates; plain data."""

    def drawn(self, batches: "list[Batch]", *, share: int, of: int) -> "list[Batch]":
        """The next update's micro-batches as this share of ``of``: these where they are it, else fetched anew."""

    def idle(self) -> bool:
        """Say that this rank lives though it makes no update; whether it was asked to stop."""
