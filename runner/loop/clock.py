"""Times training, without evaluations and checkpoints, and the parts of it spent waiting for data and logging."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch

from manyheads.runner.parallel.rank.parallel import Parallel

T = TypeVar("T")
WARMUP_UPDATES = 5


class Lap(NamedTuple):
    """Seconds since the last lap, and the parts of them spent waiting for data and logging.

    ``is_warm``: whether the lap counts for the throughput.
    """

    seconds: float
    waited: float
    logged: float
    is_warm: bool

    def finished(self) -> "Lap":
        """The lap itself; overridden by laps whose numbers are not known yet."""
        return self


class Clock:
    """Times intervals between reductions. All numbers are this rank's seconds; ``DeviceClock`` has those of its GPU.

    The first WARMUP_UPDATES updates of a process (starting loader processes, choosing algorithms, compiling)
    are training time, but no lap with any of them counts for the throughput.
    """

    def __init__(self) -> None:
        self._mark = self.now = time.perf_counter()  # now: when the last update came
        self._waited = self._logged = 0.0
        self._updates = self._before = 0  # in all, and when the lap began

    def resume(self) -> None:
        """Called when training continues; the time since the last lap (evaluation, a checkpoint) is not counted."""
        self._mark, self._waited, self._logged = time.perf_counter(), 0.0, 0.0

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the same updates, recording the time spent waiting for each."""
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

    def lap(self) -> "Lap | DeviceLap":
        """The time since the last lap. Time from now until ``logged`` is called counts as logging."""
        now = time.perf_counter()
        lap = Lap(now - self._mark, self._waited, self._logged, self._before >= WARMUP_UPDATES)
        self._mark, self._waited, self._logged, self._before = now, 0.0, 0.0, self._updates
        return lap

    def logged(self) -> None:
        """Count the time since the last lap as logging; not after an update, whose time it would be."""
        if self._updates == self._before:
            self._logged = time.perf_counter() - self._mark


class DeviceLap(NamedTuple):
    """A lap whose last update the GPU may still be computing: events in its stream, whose times are read later.

    ``waits``: for each update, the end of the preceding update, and the start of its own work.
    """

    began: torch.cuda.Event
    ended: torch.cuda.Event
    logged: torch.cuda.Event
    waits: list[tuple[torch.cuda.Event, torch.cuda.Event]]
    is_warm: bool

    def finished(self) -> Lap:
        """The lap, once the GPU has reached its end."""
        self.ended.synchronize()
        waited = sum(done.elapsed_time(begun) for done, begun in self.waits)
        seconds, logged = self.began.elapsed_time(self.ended), self.began.elapsed_time(self.logged)
        return Lap(seconds / 1000, waited / 1000, logged / 1000, self.is_warm)


class DeviceClock(Clock):
    """Times the GPU's work in its own stream without waiting for it, since the host is many updates ahead.

    So waiting for data counts only while the GPU is idle.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waits: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._began = self._logged_at = moment()

    def resume(self) -> None:
        self._began = self._logged_at = moment()
        self._waits = []

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        iterator = iter(items)
        while True:
            done = moment()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._waits.append((done, moment()))
            self.now = time.perf_counter()
            self._updates += 1
            yield item

    def lap(self) -> DeviceLap:
        lap = DeviceLap(self._began, moment(), self._logged_at, self._waits, self._before >= WARMUP_UPDATES)
        self._began = self._logged_at = lap.ended
        self._waits, self._before = [], self._updates
        return lap

    def logged(self) -> None:
        if self._updates == self._before:
            self._logged_at = moment()


def moment() -> torch.cuda.Event:
    """An event at which the current stream has done everything queued so far."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def clock_of(device: torch.device) -> Clock:
    """The clock that times the work of this device."""
    return DeviceClock() if device.type == "cuda" else Clock()


class Stopwatch:
    """Times what all ranks do, from the moment at which all have begun until the slowest one has finished."""

    def __init__(self, parallel: Parallel):
        self._parallel = parallel
        self._began = self.seconds = 0.0

    def start(self) -> None:
        wait_for_all(self._parallel)
        self._began = time.perf_counter()

    def stop(self) -> float:
        """The seconds since the start, the same on all ranks."""
        wait_for_all(self._parallel)
        seconds = torch.tensor([time.perf_counter() - self._began], dtype=torch.float64, device=self._parallel.device)
        self.seconds = self._parallel.reduce(seconds, "max").item()
        return self.seconds


def wait_for_all(parallel: Parallel) -> None:
    """Wait until the devices of all ranks have finished all queued work."""
    if parallel.device.type == "cuda":
        torch.cuda.synchronize(parallel.device)
    parallel.reduce(torch.zeros(1, device=parallel.device), "max").item()
