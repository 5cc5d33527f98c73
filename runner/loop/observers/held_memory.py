"""What each rank holds: bytes of parameters, of the optimizer's state, and of gradients in an update."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.loop.guards.guard import GradientObserver
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.structure import held_bytes, state_tensors


class HeldMemory(Observer):
    """Counts the bytes on this rank."""

    def __init__(self, update: Update):
        self._update, self._gradients = update, 0
        self._first_update = GradientObserver(self._measure)

    def start(self, progress: Progress) -> None:
        self._update.guards.insert(0, self._first_update)

    def concluding(self) -> Mapping[str, Any]:
        update, parallel = self._update, self._update.parallel
        state = state_tensors(parallel.optimizer_state(update.optimizer))
        tensors = parallel.model_tensors(parallel.unwrap(update.model)), state
        ranks = zip(*parallel.gather([*map(held_bytes, tensors), self._gradients]), strict=True)
        return {"held_bytes": dict(zip(("parameters", "optimizer", "gradients"), map(list, ranks), strict=True))}

    def _measure(self) -> None:
        update, parallel = self._update, self._update.parallel
        update.guards.remove(self._first_update)
        self._gradients = held_bytes(parallel.gradient_tensors(parallel.unwrap(update.model), update.optimizer))
