"""What the steps of a loop consist of: each one's time on the device and on the host, then a profile of some more."""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from manyheads.runner.loop.clock import Clock

T = TypeVar("T")
KINDS = {"cuda": ("kernel", "gpu_memcpy", "gpu_memset"), "cpu": ("cpu_op",)}
NAME = 100  # characters of a kernel's name
MOST = 60  # names that the file keeps


@dataclass(frozen=True)
class Profile:
    """Of a profiled step on average, in ms. busy: something ran; idle: nothing did; longest: idle at once.

    kernels: operations on the device, copies included; by_name: ms of each name, added up over all streams.
    """

    busy: float
    idle: float
    longest: float
    kernels: float
    by_name: dict[str, float]


@dataclass(frozen=True)
class Steps:
    """Numbers in ms, by step, of those between clock's start and stop; ``opening``: of those before.

    device: from the end of the step before to its own, in the device's own time; host: the same on the host, which is
    ahead; loading: that the host spends in the loader until it has the batch; processor: per step, of all threads of
    the process; launching: of the host for the first step, before which the device had nothing left to do.
    """

    opening: list[float]
    device: list[float]
    host: list[float]
    loading: list[float]
    processor: float
    launching: float
    profile: Profile | None = None

    @property
    def median(self) -> float:
        return median(self.device)


class Recorder:
    """Notes the moments at which steps end; ``waiting`` those at which a batch is asked for and comes."""

    def __init__(self, device: str):
        self._device = device
        self._ends: list[Any] = []
        self._host: list[float] = []
        self._loading: list[float] = []
        self._processor: list[float] = []
        self._resumed = 0.0
        self._clock = Clock()

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        return self._clock.waiting(items)

    def step(self) -> None:
        if self._device == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._ends.append(event)
        else:
            self._ends.append(time.perf_counter())
        self._host.append(time.perf_counter())
        self._processor.append(time.process_time())
        self._loading.append(self._clock.lap().finished().waited)

    def resume(self) -> None:
        """The clock starts: the device has done all steps so far, for which the host has waited."""
        self._resumed = time.perf_counter()

    def steps(self, first: int, last: int, found: Profile | None = None) -> Steps:
        """``first``, ``last``: the steps after which the clock started and stopped; the device has done them."""
        device = [self._between(*pair) for pair in zip(self._ends, self._ends[1:], strict=False)]
        begun = [*self._host[: first - 1], self._resumed, *self._host[first:]]
        host = [1000 * (end - start) for start, end in zip(begun, self._host[1:], strict=False)]
        own = slice(first - 1, last - 1)  # of the steps from the second one on
        return Steps(
            opening=device[: first - 1],
            device=device[own],
            host=host[own],
            loading=[1000 * each for each in self._loading[first:last]],
            processor=1000 * (self._processor[last - 1] - self._processor[first - 1]) / (last - first),
            launching=host[first - 1],
            profile=found,
        )

    def _between(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) if self._device == "cuda" else 1000 * (end - start)


class Profiler:
    """torch's profiler over ``steps`` steps. Only the device's work is recorded, so that the host is hardly slowed."""

    def __init__(self, device: str, steps: int):
        self._kinds, self._steps = KINDS[device], steps
        activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
        # There is one cycle; without acc_events, torch 2.11 warns that only the last one's events are kept.
        self._profile = profile(activities=[activity], acc_events=True)

    def start(self) -> None:
        self._profile.start()

    def stop(self) -> Profile:
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        return summed([each for each in events if each.get("cat") in self._kinds], self._steps)


def summed(events: list[dict[str, Any]], steps: int) -> Profile:
    """``events``: of a trace, with ``ts`` and ``dur`` in µs; they overlap if they ran on several streams."""
    by_name: Counter[str] = Counter()
    busy = idle = longest = end = 0.0
    for event in sorted(events, key=lambda event: event["ts"]):
        by_name[event["name"][:NAME]] += event["dur"] / 1000 / steps
        start, stop = event["ts"], event["ts"] + event["dur"]
        gap = max(0.0, start - end) if end else 0.0
        idle, longest = idle + gap, max(longest, gap)
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    spent = [each / 1000 / steps for each in (busy, idle)]
    return Profile(*spent, longest / 1000, len(events) / steps, dict(by_name.most_common(MOST)))
