"""Where the time goes: seconds of training, evaluation and checkpoints left out, and of waiting for data."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
WARMUP_UPDATES = 5


class Clock:
    """Times intervals between reductions, where the device has caught up anyway. All numbers are this rank's seconds.

    The first WARMUP_UPDATES updates of a process (starting loader processes, choosing algorithms, compiling)
    are training time, but don't count for the throughput.
    """

    def __init__(self) -> None:
        self._mark = time.perf_counter()
        self._waited = 0.0
        self._updates = 0

    def resume(self) -> None:
        """Training goes on; what came since the last lap (evaluation, a checkpoint) is not counted."""
        self._mark, self._waited = time.perf_counter(), 0.0

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, with the time that each one takes to come noted."""
        iterator = iter(items)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._waited += time.perf_counter() - start
            yield item

    def tick(self) -> None:
        """An update is done."""
        self._updates += 1

    def lap(self) -> tuple[float, float, bool]:
        """Seconds since the last lap, those waited for data, and whether they count for the throughput."""
        now = time.perf_counter()
        seconds, waited = now - self._mark, self._waited
        self._mark, self._waited = now, 0.0
        warm = self._updates > WARMUP_UPDATES
        return seconds, waited, warm
