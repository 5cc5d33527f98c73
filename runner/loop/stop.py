"""The request to stop: sent to any rank, received by all after the same step."""

import signal

from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.signals import SIGNALS


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
