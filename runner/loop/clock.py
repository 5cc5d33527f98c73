"""Seconds of training, evaluation and checkpoints left out, and of them those of waiting for data and of logging."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch

T = TypeVar("T")
WARMUP_UPDATES = 5


class Lap(NamedTuple):
    """Seconds since the last lap, and those of them that passed in waiting for data and in logging.

    is_warm: whether they count for the throughput.
    """

    seconds: float
    waited: float
    logged: float
    is_warm: bool


class Clock:
    """Times intervals between reductions, which wait for the device anyway. All numbers are this rank's seconds.

    The first WARMUP_UPDATES updates of a process (starting loader processes, choosing algorithms, compiling)
    are training time, but no lap with any of them counts for the throughput.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._mark = self.now = time.perf_counter()  # now: when the last update came
        self._waited = self._logged = 0.0
        self._updates = self._before = 0  # in all, and when the lap began

    def resume(self) -> None:
        """Training goes on; what came since the last lap (evaluation, a checkpoint) is not counted."""
        self._mark, self._waited, self._logged = time.perf_counter(), 0.0, 0.0

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """The same updates, with the time that each one takes to come noted."""
        iterator = iter(items)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self.now = time.perf_counter()
            self._waited += self.now - start
            self._updates += 1
            yield item

    def lap(self) -> Lap:
        """What passed since the last lap. What follows, until ``logged`` is called, is logging."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        lap = Lap(now - self._mark, self._waited, self._logged, self._before >= WARMUP_UPDATES)
        self._mark, self._waited, self._logged, self._before = now, 0.0, 0.0, self._updates
        return lap

    def logged(self) -> None:
        self._logged = time.perf_counter() - self._mark
