"""The points of an update at which a guard is asked. Their order is numerics.

1. ``leave_out``: before anything is computed.
2. ``compute``: around forward and backward passes and the exchange of gradients; ``computed``: after each time that
   these ran, in which gradients may be scaled.
3. ``exchanged``: when the update's gradients are there, still scaled. SAM replaces them here.
4. ``unscaled``: gradients are as the loss function made them, not yet clipped.
5. ``reject``: after they are clipped to a norm. The first guard of the list with a reason has the update skipped.
6. ``stepped``: after clipping to a value and the optimizer's step, or after the update was skipped.

``evaluate`` is around an evaluation's forward pass. All ranks call all points in the same order, so that a guard may
communicate. The list is empty in a plain run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.parallel.rank.passes import ForwardResult

if TYPE_CHECKING:
    from manyheads.runner.loop.update import Update

Compute = Callable[[list[Batch]], list[ForwardResult]]


class Guard:
    """Does nothing at every point. ``step``: the update's number, counted from 1.

    ``rejects``: whether it may have updates skipped, for which their gradient norm is computed and the model's buffers
    are kept; ``frozen``: modules that it never lets enter training mode; ``key``: the checkpoint's, if it has a state.
    """

    rejects = False
    frozen: Sequence[nn.Module] = ()
    key: str | None = None

    def leave_out(self, step: int) -> object | None:
        """The reason for which update ``step`` is skipped without being computed; None to compute it."""

    def compute(self, update: "Update", step: int, batches: list[Batch], compute: Compute) -> list[ForwardResult]:
        """Call ``compute`` with an update's micro-batches, once or more often."""
        return compute(batches)

    def computed(self) -> None:
        """Gradients were computed, and exchanged."""

    def exchanged(self, update: "Update", step: int, batches: list[Batch]) -> None:
        """The update's gradients, still scaled, are in the parameters."""

    def unscaled(self) -> None:
        """The update's gradients are not scaled any more, and not yet clipped."""

    def reject(self, update: "Update", step: int, passes: list[ForwardResult], norm: Tensor) -> object | None:
        """The reason for which the update is skipped; None to make it. ``norm``: of its gradients, ()."""

    def stepped(self, step: int) -> None:
        """The update was made or skipped."""

    def evaluate(self, forward: Callable[[Any], Any], inputs: Any) -> Any:
        """The outputs that ``forward`` returns for an evaluation's inputs."""
        return forward(inputs)

    def enter_epoch(self, epoch: int) -> None:
        """Training epoch ``epoch``, counted from 0, begins."""

    def enter_training(self) -> None:
        """The model was set to training mode."""

    def before_save(self) -> None:
        """A checkpoint will be written."""

    def weights_loaded(self) -> None:
        """The weights will be replaced."""

    def state_dict(self) -> dict[str, Any]:
        """Its part of a checkpoint, as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of ``state_dict``."""

    def restarted(self, memory: Any) -> None:
        """Training has returned to a checkpoint, as this guard demanded in an earlier session. Called after loading."""


class Restart(Exception):
    """Training returns to its last checkpoint. ``memory``: what guards are told then, by their keys."""

    def __init__(self, reason: object, memory: dict[str, Any]):
        super().__init__(f"{reason}: returning to the last checkpoint")
        self.memory = memory


class GradientObserver(Guard):
    """Calls ``look`` when gradients are unscaled, before they are clipped."""

    def __init__(self, look: Callable[[], None]):
        self._look = look

    def unscaled(self) -> None:
        self._look()


@contextmanager
def observed_gradients(guards: list[Guard], look: Callable[[], None]) -> Iterator[None]:
    """A context in which ``look`` is called in each update, before other guards are asked about its gradients."""
    observer = GradientObserver(look)
    guards.insert(0, observer)
    try:
        yield
    finally:
        guards.remove(observer)
