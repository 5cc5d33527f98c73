"""Slurm's controller may be away for some minutes, for example while it restarts; jobs continue without it."""

import time
from collections.abc import Sequence

from manyheads.runner.errors import Failure, Interrupted, Kind, RunFailed, printable

AWAY_SECONDS = 900.0


class Absence:
    """How long the controller has been away. ``signals``: those that this process has received."""

    def __init__(self, signals: Sequence[int]):
        self._signals = signals
        self._deadline: float | None = None

    def goes_on(self, said: str) -> None:
        """Called for each question without an answer.

        Raises Interrupted after a signal, RunFailed after ``AWAY_SECONDS``.
        """
        if self._signals:
            raise Interrupted(self._signals[0])
        if self._deadline is None:
            self._deadline = time.monotonic() + AWAY_SECONDS
            minutes = f"{AWAY_SECONDS / 60:g} minutes"
            print(f"Slurm's controller does not answer; asking again for {minutes}: {printable(said)}", flush=True)
        elif time.monotonic() > self._deadline:
            raise RunFailed(Failure(Kind.UNREACHABLE, message=f"Slurm's controller does not answer: {said}."))

    def ended(self) -> None:
        """Called for each answer."""
        self._deadline = None
