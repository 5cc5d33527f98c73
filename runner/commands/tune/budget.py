"""The budget of a tuning: what its runs have taken, and how many more fit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from manyheads.runner.commands.tune.race import Variant
from manyheads.runner.judge.rows import BASE, TRIAL, Row, Rows

BETWEEN = 10.0  # seconds between two runs that count at most: longer ones were an interruption


@dataclass
class Budget:
    """``total``: seconds, those of recorded runs included.

    A tuning that is asked again reads its recorded runs one after the other, and counts them as it does.
    """

    ledger: Rows
    total: float
    _last: int = -1

    def count(self, rows: Iterable[Row]) -> None:
        """Count these runs, and those before them."""
        self._last = max([self._last, *(row.number for row in rows)])

    def rows(self) -> list[Row]:
        """Those that count so far."""
        return [row for row in self.ledger.rows() if row.number <= self._last]

    @property
    def left(self) -> float:
        """Seconds."""
        spent, before = 0.0, math.inf
        for row in self.rows():
            spent += _duration(row) + min(max(row.began - before, 0.0), BETWEEN)
            before = row.ended or row.began
        return self.total - spent

    def fits(self, variants: Sequence[Variant]) -> int:
        """How many times a run of each of them does."""
        return max(0, int(self.left / sum(map(self.seconds_of, variants))))

    def seconds_of(self, variant: Variant) -> float:
        """How long a timed run of a configuration took, from its start; until one has run, of the user's own."""
        for arm in (arm_of(variant), BASE):
            timed = [row for row in self.rows() if row.arm == arm and "seconds" in row.findings]
            if found := [_duration(row) for row in timed if row.purpose != TRIAL]:
                return median(found[-5:])
        return 0.0


def arm_of(variant: Variant) -> str:
    """The name of a configuration in the ledger."""
    return " ".join(variant) or BASE


def log_seconds(row: Row) -> float:
    """The logarithm of the seconds of an update in a completed run."""
    return math.log(row.findings["seconds"] / row.findings["updates"])


def _duration(row: Row) -> float:
    return (row.ended or row.began) - row.began
