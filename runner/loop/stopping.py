"""Why a run may end before its last epoch: it no longer gets better, or its time is up. The same on all ranks."""

import math
import signal
from dataclasses import dataclass

from manyheads.runner.loop.progress import Progress
from manyheads.runner.machine.process import SIGNALS
from manyheads.runner.run.heartbeat import Heartbeat

MAX_TIME = "max_time"
PATIENCE = "patience"


@dataclass(frozen=True)
class Ending:
    """The keys ``trainer.max_time``, in seconds, ``trainer.patience`` and ``trainer.min_delta``.

    The decision is recorded in the progress, under the name of its key, and so in checkpoints.
    """

    max_time: float | None = None
    patience: int | None = None
    min_delta: float = 0.0

    def flags(self, progress: Progress) -> dict[str, float]:
        """What this rank's clock says, as numbers to be added up over all ranks; nothing without a limit.

        Training, evaluation and checkpoints of all sessions count.
        """
        if self.max_time is None:
            return {}
        return {MAX_TIME: float(sum(progress.time(progress.seconds).values()) >= self.max_time)}

    def hear(self, flags: dict[str, float], progress: Progress) -> None:
        """Receive ``flags`` summed over all ranks, which are the same on each of them."""
        if flags.get(MAX_TIME):
            progress.ended = MAX_TIME

    def evaluated(self, score: float | None, direction: str, progress: Progress) -> None:
        """Take note of the monitored metric, the same on every rank; None where it was not measured."""
        if self.patience is None or score is None:
            return
        sign, record = (1 if direction == "max" else -1), progress.record
        if not math.isnan(score) and (record is None or sign * (score - record) > self.min_delta):
            progress.record, progress.waited = score, 0
            return
        progress.waited += 1
        if progress.waited >= self.patience:
            progress.ended = PATIENCE


NEVER = Ending()


class Stop:
    """Exchanges requests to stop in reductions that happen anyway. ``signal``: the agreed one, or None."""

    def __init__(self, heartbeat: Heartbeat):
        self._heartbeat = heartbeat
        self.signal: signal.Signals | None = None

    def flags(self) -> dict[str, float]:
        """The requests that this rank received, as numbers to be summed over ranks."""
        return {s.name: float(self._heartbeat.stop_signal == s) for s in SIGNALS}

    def hear(self, flags: dict[str, float]) -> None:
        """Receive ``flags`` summed over all ranks, which are the same on each of them."""
        self.signal = next((s for s in SIGNALS if flags[s.name]), None)
