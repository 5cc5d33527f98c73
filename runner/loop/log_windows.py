"""The log windows: closed one by one, and exchanged between the ranks several at once.

A small model's updates take less time than an exchange does, so an exchange for each window would be most of the cost.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.clock import DeviceLap, Lap, clock_of
from manyheads.runner.loop.meter import Meter, Sums
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.update import UpdateResult
from manyheads.runner.parallel.rank.parallel import Parallel

COLLECT_SECONDS = 0.1  # at least, between two exchanges, unless a window takes longer
MOST = 100  # windows at once
HEARD_SECONDS = 1.0  # at most, between two exchanges, unless an update takes longer: how soon a run stops when asked to
AT_ONCE, WITHIN = "at_once", "within"


class LogRow(NamedTuple):
    """The values of a row of steps.csv besides sums; ``norm``: of the last update's gradients."""

    step: int
    lr: float
    norm: Tensor | float
    time: float  # of that update, in seconds since 1970


class LogWindow(NamedTuple):
    """A window over all ranks. ``lap``: this rank's times; ``row``: that it ends with, if it does."""

    sums: Sums
    lap: Lap
    row: LogRow | None
    updates: int


class LogWindows:
    """Counts and times of the training updates on this rank, and their sums over all ranks.

    ``observers``: what adds to a window's sums; the list may be changed between two windows.
    """

    def __init__(self, parallel: Parallel, scores: Scores, observers: Sequence[Observer] = ()):
        self.meter, self.clock = Meter(parallel, scores), clock_of(parallel.device)
        self._parallel, self._observers = parallel, observers
        self.updates = 0  # in the open window
        self._closed: list[tuple[Sums, Lap | DeviceLap, LogRow | None, int]] = []
        self._at_once, self._collected_at = 1, time.perf_counter()
        self._uncollected, self._within = 0, 1  # updates since the last exchange; after how many the next one is due

    def add(self, batches: list[Batch], result: UpdateResult) -> None:
        """Count an update of these micro-batches."""
        self.updates += 1
        self._uncollected += 1
        if result.rejection is None:
            for passed in result.passes:
                if passed.samples:
                    self.meter.add(passed)
        for batch in batches:
            if batch.corrupt:
                self.meter.note_corrupt(len(batch.corrupt))

    def close(self, row: LogRow | None = None) -> None:
        """End the window, with a row of steps.csv or before one is due."""
        self._closed.append((self.meter.close(), self.clock.lap(), row, self.updates))
        for observer in self._observers:
            observer.window_closed()
        self.updates = 0
        self.clock.logged()

    @property
    def is_due(self) -> bool:
        """Whether enough windows or updates wait to be collected; the same on all ranks."""
        return len(self._closed) >= self._at_once or self._uncollected >= self._within

    def collect(self, flags: dict[str, float], *, complete: bool = True) -> tuple[list[LogWindow], dict[str, float]]:
        """The closed windows, if there are any, with the sums of all ranks, and ``flags`` added up over all ranks.

        ``complete``: statistics too, which may otherwise follow with a later call.
        """
        laps = [self._timed(sums, lap) for sums, lap, *_ in self._closed]
        for observer in self._observers:
            observer.exchanging([sums for sums, *_ in self._closed])
        intervals, heard = self.meter.collect(flags | self._next_exchange(), complete=complete)
        self._at_once, self._within, self._uncollected = int(heard[AT_ONCE]), int(heard[WITHIN]), 0
        closed, self._closed = self._closed, []
        rows = zip(closed, laps, intervals, strict=True)
        return [LogWindow(sums, lap, row, updates) for (*_, row, updates), lap, sums in rows], heard

    def _timed(self, sums: Sums, lap: Lap | DeviceLap) -> Lap:
        """The lap, whose times are put into the sums of its window. Waits for the device, as adding up does anyway."""
        finished = lap.finished()
        sums.take({"seconds": finished.seconds, "data_seconds": finished.waited, "logging_seconds": finished.logged})
        return finished

    def _next_exchange(self) -> dict[str, float]:
        """How many windows to wait for next, or else updates. Rank 0 alone decides: all ranks exchange together."""
        now = time.perf_counter()
        seconds, self._collected_at = max(now - self._collected_at, 1e-9), now
        if self._parallel.rank:
            return dict.fromkeys((AT_ONCE, WITHIN), 0.0)
        windows, updates = len(self._closed), self._uncollected
        at_once = max(1, min(MOST, COLLECT_SECONDS * windows // seconds)) if windows else self._at_once
        return {AT_ONCE: float(at_once), WITHIN: float(max(1, HEARD_SECONDS * updates // seconds))}
