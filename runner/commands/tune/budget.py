"""The budget of a tuning: what its runs have taken, and how many more fit."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from manyheads.runner.commands.tune.race import BASE, Variant
from manyheads.runner.config.candidates import startup_of
from manyheads.runner.judge.rows import BASE as BASE_ARM
from manyheads.runner.judge.rows import TRIAL, RunLedger, RunRow

BETWEEN = 10.0  # seconds between two runs that count at most: longer ones were an interruption
RECENT = 5  # runs of a configuration from which it is expected how long the next one takes
BETWEEN_RUNS = "between"


@dataclass
class Budget:
    """``total``: seconds, those of recorded runs included.

    A tuning that is asked again reads its recorded runs one after the other, and counts them as it does.
    """

    ledger: RunLedger
    total: float
    _last: int = -1

    def count(self, rows: Iterable[RunRow]) -> None:
        """Count these runs, and those before them."""
        self._last = max([self._last, *(row.number for row in rows)])

    def rows(self) -> list[RunRow]:
        """Those that count so far."""
        return [row for row in self.ledger.rows() if row.number <= self._last]

    @property
    def left(self) -> float:
        """Seconds."""
        return self.total - sum(self.by_purpose().values())

    def seconds_of(self, variant: Variant) -> float:
        """How long a timed run of a configuration takes on average, from its start.

        Until one has run: of the user's own, and what its settings added to others at least, or are declared to add.
        """
        took: dict[Variant, list[float]] = defaultdict(list)
        for row in self.rows():
            if "seconds" in row.findings and row.purpose != TRIAL:
                took[variant_of(row.arm)].append(_duration(row))
        if variant in took or variant == BASE:
            return fmean(took[variant][-RECENT:] or [0.0])
        own = fmean(took[BASE][-RECENT:] or [0.0])
        longer = {each: fmean(found[-RECENT:]) - own for each, found in took.items()}
        least = [
            min((longer[each] for each in took if setting in each), default=startup_of(setting)) for setting in variant
        ]
        return own + max([0.0, *least])

    def by_purpose(self) -> dict[str, float]:
        """The seconds of all runs for each purpose; "between": those between runs."""
        found, before = defaultdict[str, float](float), math.inf
        for row in self.rows():
            found[row.purpose] += _duration(row)
            found[BETWEEN_RUNS] += min(max(row.began - before, 0.0), BETWEEN)
            before = row.ended or row.began
        return dict(found)


def arm_of(variant: Variant) -> str:
    """The name of a configuration in the ledger."""
    return " ".join(variant) or BASE_ARM


def variant_of(arm: str) -> Variant:
    """The configuration of a name in the ledger."""
    return BASE if arm == BASE_ARM else tuple(arm.split())


def log_seconds(row: RunRow) -> float:
    """The logarithm of the seconds of an update in a completed run."""
    return math.log(row.findings["seconds"] / row.findings["updates"])


def _duration(row: RunRow) -> float:
    return (row.ended or row.began) - row.began
