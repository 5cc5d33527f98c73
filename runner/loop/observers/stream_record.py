"""Keeps in checkpoints where the reading of a stream is, so that a resumed run need not read what came before."""

from typing import Any

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.streams.stream import Reached
from manyheads.runner.errors import warn
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.update import UpdateResult
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.checkpoint_places import StateDict


class StreamRecord(Observer):
    """Of a ``stream`` that keeps its state. A position's state is the same on all ranks that read its part."""

    key = "stream"

    def __init__(self, stream: Any, parallel: Parallel):
        self._stream, self._parallel = stream, parallel
        self._reached: dict[int, Reached] = {}

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        for batch in batches:
            self._reached |= batch.reached

    def state_dict(self) -> StateDict:
        ranks = self._parallel.gather(self._reached)
        return self._state({part: there for reached in ranks for part, there in reached.items()})

    def shares(self) -> StateDict:
        return self._state(self._reached)

    def _state(self, reached: dict[int, Reached]) -> StateDict:
        return {"digest": self._stream.identity, "parts": {part: [*there] for part, there in reached.items()}}

    def restore(self, state: StateDict | None) -> None:
        if not state:
            return
        if state["digest"] != self._stream.identity:
            warn("the stream begins with other samples than the checkpoint's, so it is read from its beginning.")
            return
        self._reached = {part: Reached(*there) for part, there in state["parts"].items()}
        self._stream.resume(self._reached)
