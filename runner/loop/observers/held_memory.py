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
        state = state_tensors(parallel.layout.optimizer_state(update.optimizer))
        tensors = map(parallel.layout.local, parallel.unwrap(update.model).parameters()), state
        ranks = zip(*parallel.gather([*map(held_bytes, tensors), self._gradients]), strict=True)
        return {"held_bytes": dict(zip(("parameters", "optimizer", "gradients"), map(list, ranks), strict=True))}

    def _measure(self) -> None:
        self._update.guards.remove(self._first_update)
        self._gradients = gradient_bytes(self._update)


def gradient_bytes(update: Update) -> int:
    """The bytes of the gradients in this rank's memory once they have been exchanged."""
    layout, model = update.parallel.layout, update.parallel.unwrap(update.model)
    updated = (parameter for group in update.optimizer.param_groups for parameter in group["params"])
    parameters = dict.fromkeys([*model.parameters(), *updated])
    return held_bytes(layout.local(parameter.grad) for parameter in parameters if parameter.grad is not None)
