"""The points of a run at which observers are told what happens, each in the order of the list.

``start``; then for each epoch ``training``, around its updates. For each of them ``before_update`` and ``updated``; for
each log window ``window_closed``; for several windows at once ``exchanging``, ``window_exchanged`` and ``exchanged``.
After an epoch's updates ``settled`` and ``epoch_trained``; around its evaluation ``evaluating``; then ``epoch_ended``.
For a checkpoint ``settled``, ``saving`` and ``saved``. At the end ``concluding`` and ``ended``; ``close`` comes last,
however the run ended.

The order is numerics where an observer computes: samples are recorded first, since all others may fail; the average
takes the weights after that, and before anybody is told of the update (``updated``), or the epoch's evaluation begins
(``epoch_trained``). An observer changes no weights, except for the average at the end of the last epoch. All ranks call
all points in the same order, so that an observer may communicate, except for callbacks that only rank 0 has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from torch import Tensor

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.progress import Progress
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.json_types import Numbers, ResultJson

if TYPE_CHECKING:
    from manyheads.runner.data.rank.loader import Loader
    from manyheads.runner.loop.log_windows import LogWindow
    from manyheads.runner.loop.update import UpdateResult

P = ParamSpec("P")


class Observer:
    """Does nothing at every point. ``key``: the checkpoint's, if it has a state."""

    key: str | None = None

    def start(self, progress: Progress) -> None:
        """Training or an evaluation without training starts, or is resumed."""

    def training(self, updates: int) -> AbstractContextManager[Any]:
        """A context around the rest of an epoch. ``updates``: how many it has."""
        return nullcontext()

    def before_update(self, now: float) -> None:
        """An update will be made. ``now``: by time.perf_counter."""

    def updated(self, progress: Progress, batches: list[Batch], result: "UpdateResult") -> None:
        """An update was made or skipped, and is counted in ``progress``."""

    def window_closed(self) -> None:
        """A log window ends with the last update."""

    def exchanging(self, windows: Sequence[Sums]) -> None:
        """Windows will be exchanged. ``windows``: this rank's sums of each, in which an observer may set its fields."""

    def window_exchanged(self, progress: Progress, window: "LogWindow") -> None:
        """A window's sums over all ranks are known, which ``progress`` does not count yet."""

    def exchanged(self, progress: Progress, by_rank: Tensor) -> None:
        """Windows were exchanged and reported. ``by_rank``: their sums, (ranks, NAMES)."""

    def settled(self, progress: Progress) -> None:
        """An epoch's updates are complete, or a checkpoint follows: all updates were exchanged."""

    def epoch_trained(self, progress: Progress, *, is_last: bool, train: "Loader") -> None:
        """An epoch's updates are complete; its evaluation follows. ``train``: the data that it was trained on."""

    def evaluating(self) -> AbstractContextManager[Any]:
        """A context around an evaluation while training."""
        return nullcontext()

    def evaluated_batch(self, outputs: Any, batch: Batch) -> None:
        """A batch was evaluated."""

    def evaluated(self, split: str, samples: Any) -> None:
        """The evaluation of a split is complete. ``samples``: the data set."""

    def epoch_ended(self, row: Numbers) -> None:
        """An epoch is complete, with this row of epochs.csv."""

    def saving(self) -> None:
        """A checkpoint will be written."""

    def saved(self) -> None:
        """A checkpoint is complete."""

    def concluding(self) -> Mapping[str, Any]:
        """Its part of result.json; all ranks call it."""
        return {}

    def ended(self, result: ResultJson) -> None:
        """The run ended without an error. ``result``: the content of result.json on rank 0, else empty."""

    def close(self) -> None:
        """Release resources."""

    def state_dict(self) -> StateDict:
        """Its part of a checkpoint, of the whole model, complete on rank 0; all ranks call it."""
        return {}

    def shares(self) -> StateDict:
        """The same, but with this rank's part of each tensor."""
        return {}

    def restore(self, state: StateDict | None) -> None:
        """Restore the result of either; None from a checkpoint without it."""


def overriding(point: Callable[Concatenate[Any, P], None], observers: Iterable[Observer]) -> list[Callable[P, None]]:
    """The observers' methods for a ``point`` of Observer, without those that do nothing."""
    name = point.__name__
    return [getattr(observer, name) for observer in observers if getattr(type(observer), name) is not point]
