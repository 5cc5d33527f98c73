"""The request to stop: asked of any rank, heard by all after the same step."""

import signal

from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.signals import SIGNALS


class Stop:
    """Rides along in reductions that happen anyway. ``signal``: the one that all ranks have heard, or None."""

    def __init__(self, heartbeat: Heartbeat):
        self._heartbeat = heartbeat
        self.signal: signal.Signals | None = None

    def flags(self) -> dict[str, float]:
        """What this rank was asked, as numbers to be added up over all ranks."""
        return {s.name: float(self._heartbeat.stop_signal == s) for s in SIGNALS}

    def hear(self, flags: dict[str, float]) -> None:
        """``flags`` added up over all ranks, which is the same on each of them."""
        self.signal = next((s for s in SIGNALS if flags[s.name]), None)
