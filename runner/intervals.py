"""The log intervals: closed one by one, exchanged between the ranks several at once, and made into rows.

A small model's updates take less time than an exchange does, so that one for each interval would be most of its cost.
"""

import math
import time
from typing import NamedTuple

from torch import Tensor

from runner.breakdown import Breakdown
from runner.clock import Clock, Lap
from runner.metrics import Meter, Sums
from runner.parallel.base import Parallel
from runner.progress import Progress
from runner.reporter import Reporter
from runner.stop import Stop

COLLECT_SECONDS = 0.1  # at least, between two exchanges, unless an interval takes longer
MOST = 16  # intervals at once
AT_ONCE = "at_once"


class Row(NamedTuple):
    """What a row of steps.csv says besides sums; ``norm``: of the last update's gradients."""

    step: int
    lr: float
    norm: Tensor | float


class Intervals:
    """Counts and times of the training updates on this rank, and what all ranks' come to."""

    def __init__(self, *, parallel: Parallel, breakdown: Breakdown, reporter: Reporter, stop: Stop, log_every: int):
        self.meter, self.clock, self.breakdown = Meter(parallel), Clock(parallel.device), breakdown
        self._parallel, self._reporter, self._stop = parallel, reporter, stop
        self._log_every = log_every
        self._closed: list[tuple[Lap, Row | None]] = []
        self._at_once, self._collected_at = 1, time.perf_counter()

    def close(self, row: Row | None = None) -> None:
        """An interval ends, with a row of steps.csv, or before its time to let everything be complete."""
        lap = self.clock.lap()
        times = {"seconds": lap.seconds, "data_seconds": lap.waited, "logging_seconds": lap.logged}
        self.meter.close(**times, **self.breakdown.take())
        self._closed.append((lap, row))
        self.clock.logged()

    @property
    def is_due(self) -> bool:
        """Whether enough intervals wait to be collected; alike on all ranks."""
        return len(self._closed) >= self._at_once

    def collect(self, progress: Progress, *, whole: bool = True) -> None:
        """Add up the ranks' sums of the closed intervals, write the rows, and hear whether a rank was asked to stop.

        ``whole``: accuracies too, which may otherwise follow with a later call. Raises FloatingPointError when the loss
        is not finite any more.
        """
        found, flags = self.meter.collect(self._stop.flags() | {AT_ONCE: self._next_at_once()}, judge=whole)
        self._stop.hear(flags)
        self._at_once = int(flags[AT_ONCE])
        closed, self._closed = self._closed, []
        for (lap, row), sums in zip(closed, found, strict=True):
            _count(progress, lap, sums)
            if not math.isfinite(sums.loss):
                step = progress.step if row is None else row.step
                raise FloatingPointError(
                    f"the loss became {sums.loss} between step {max(0, step - self._log_every)} and step {step}. Lower "
                    "optimizer.lr, add scheduler.warmup_epochs or trainer.clip_norm; trainer.detect_anomaly=true finds "
                    "the operation, trainer.on_nan=skip leaves such updates out."
                )
            if row is not None:
                self._reporter.interval(progress, step=row.step, lr=row.lr, grad_norm=float(row.norm))
        self.clock.logged()

    def complete(self, progress: Progress) -> None:
        """Bring ``progress`` to where training is, also in the middle of an interval."""
        self.close()
        self.collect(progress)

    def _next_at_once(self) -> float:
        """How many intervals to wait for next; rank 0's word alone, or the ranks would not meet."""
        now, count = time.perf_counter(), max(1, len(self._closed))
        seconds, self._collected_at = (now - self._collected_at) / count, now
        return float(max(1, min(MOST, COLLECT_SECONDS // max(seconds, 1e-9)))) if self._parallel.rank == 0 else 0.0


def _count(progress: Progress, lap: Lap, sums: Sums) -> None:
    progress.samples += int(sums.count)
    progress.corrupt += int(sums.corrupt)
    progress.seconds += lap.seconds
    if lap.is_warm:
        progress.timed_samples += sums.count
        progress.timed_seconds += lap.seconds
    progress.interval.add(sums)
    progress.sums.add(sums)
