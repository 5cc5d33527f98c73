"""The interface between the loop and a strategy that computes updates itself."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from manyheads.runner.run.checkpoint_places import StateDict

if TYPE_CHECKING:
    from manyheads.runner.data.keys import TakenSamples
    from manyheads.runner.data.rank.batches import Batch


class ForwardResult(NamedTuple):
    """The results of a micro-batch's forward pass, without gradients.

    ``loss``: () as returned by the task; ``scale``: the factor that turns it into a sum; ``samples``: their number;
    ``counted``: the number of elements that the loss averages over; ``observed``: what the task and the metrics keep
    for their statistics; ``taken``: which samples they are.
    """

    loss: Tensor
    scale: float
    samples: int
    counted: float
    observed: Any
    taken: "TakenSamples | None" = None


class ForwardBackward(Protocol):
    """The plain way through a micro-batch, and its parts for strategies that do it differently."""

    def __call__(self, batch: "Batch", *, last: bool) -> ForwardResult:
        """Forward and backward of one micro-batch; ``last``: the exchange of gradients follows."""

    def objective(self, outputs: Any, batch: "Batch") -> tuple[Tensor, ForwardResult]:
        """The tensor to differentiate so that gradients add up to the update's, and the results of the forward pass."""

    def of(self, batches: "list[Batch]") -> "ForwardBackward":
        """The same for other micro-batches of the update."""

    def flattened(self, passes: list[ForwardResult]) -> Tensor:
        """The results of these passes as one vector, (n,) float64 on the CPU, which can be summed over ranks."""

    def unflattened(self, row: Tensor) -> ForwardResult:
        """Turn a vector from ``flattened``, possibly summed over ranks, back into the results of one pass."""

    def autocast(self) -> AbstractContextManager:
        """Context for forward passes and ``objective``."""

    def scaled(self, objective: Tensor) -> Tensor:
        """The tensor to call ``backward`` on."""


class RunState(Protocol):
    """The state of a rank's run, for strategies whose ranks may leave and rejoin."""

    def standing(self) -> StateDict:
        """Everything that another rank needs to reach this rank's state, between two updates; plain data."""

    def drawn(self, batches: "list[Batch]", *, share: int, of: int) -> "list[Batch]":
        """The next update's micro-batches for this share of ``of``: the current ones if they match, else fetched."""

    def idle(self) -> bool:
        """Report that this rank is alive although it makes no update; returns whether it was asked to stop."""
