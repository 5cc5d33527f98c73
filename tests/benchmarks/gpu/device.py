"""A GPU, or the CPU where the command is only tried out: waiting for it, and its memory."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

from tests.benchmarks.gpu.case import PROFILED, Case, Measured, Setup
from tests.benchmarks.gpu.steps import Profile, Profiler, Recorder

T = TypeVar("T")


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_bytes(device: str) -> int | None:
    """Most memory of tensors since the last reset; None where that is not counted."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None


class Stopwatch:
    """Seconds of a case's span of steps, with the device's work done; called after each step.

    A profiled case goes on for the steps of its profile, which the seconds don't include.
    """

    def __init__(self, case: Case, setup: Setup):
        self.setup, self.device = setup, setup.device
        (self.first, self.last), self.end = setup.span(case), setup.end(case)
        self._recorder = Recorder(self.device)
        self._profiler = Profiler(self.device, PROFILED) if case.is_profiled else None
        self._profile: Profile | None = None
        self._times: list[float] = []
        self._peak: int | None = None

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, with a note of how long each took to come."""
        return self._recorder.waiting(batches)

    def __call__(self, step: int) -> bool:
        """False: the trainer may ask whether a checkpoint is due."""
        if step <= self.last:
            self._recorder.step()
        if step in (self.first, self.last):
            synchronize(self.device)
            self._times.append(time.perf_counter())
        if step == self.first:
            reset_peak(self.device)
            self._recorder.resume()
        if step == self.last:
            self._peak = peak_bytes(self.device)
            if self._profiler:
                self._profiler.start()
        if step == self.end and self._profiler:
            synchronize(self.device)
            self._profile = self._profiler.stop()
        return False

    def measured(self, *, bytes_per_step: int | None = None) -> Measured:
        """What was found, once the last step is done."""
        start, end = self._times
        seconds = (end - start) / (self.last - self.first)
        steps = self._recorder.steps(self.first, self.last, self._profile) if self._profiler else None
        return Measured.of(self.setup, seconds, peak_bytes=self._peak, bytes_per_step=bytes_per_step, steps=steps)
