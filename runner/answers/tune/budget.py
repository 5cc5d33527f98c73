"""The budget of a tuning: the time that its runs have taken, and that further ones will take."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from manyheads.runner.answers.measure.rows import BASE as BASE_ARM
from manyheads.runner.answers.measure.rows import TRIAL, RunLedger, RunRow
from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.config.candidates import startup_of

BETWEEN = 10.0  # at most this many seconds between two runs are counted: a longer gap is an interruption
RECENT = 5  # the latest runs of a configuration, from which the duration of its next one is estimated
FIRST_SLOWER = 2.0  # the first run of a configuration may take this many times as long as later ones
BETWEEN_RUNS = "between"


@dataclass
class Budget:
    """``total``: in seconds, including those of runs that are already recorded.

    A continued tuning reads its recorded runs one after another, and counts each when it reads it.
    """

    ledger: RunLedger
    total: float
    _last: int = -1

    def count(self, rows: Iterable[RunRow]) -> None:
        """Count these runs, and all runs before them."""
        self._last = max([self._last, *(row.number for row in rows)])

    def rows(self) -> list[RunRow]:
        """The runs that have been counted."""
        return [row for row in self.ledger.rows() if row.number <= self._last]

    @property
    def left(self) -> float:
        """The seconds that are left; negative if it is overspent."""
        return self.total - sum(self.by_purpose().values())

    def seconds_of(self, *variants: Variant, like_first: bool = False) -> float:
        """The expected seconds of a timed run of each of these configurations in total, including their starts.

        Before the first run of one, they are those of the user's own configuration, plus the most that any of its
        settings adds: the least that the setting added to another configuration, or what the option declares.
        ``like_first``: if first runs tell what later ones take.
        """
        took = self._taken(math.inf if like_first else FIRST_SLOWER)
        return sum(
            took[variant] if variant in took else took.get(BASE, 0.0) + _added(variant, took) for variant in variants
        )

    def _taken(self, slower: float) -> dict[Variant, float]:
        """By configuration, the mean seconds of its latest timed runs.

        Its first run may have started a server that its later ones find, so it counts as one that starts at most
        ``slower`` times as slowly as the user's own configuration, unless its options declare a slow start.
        """
        took: dict[Variant, list[float]] = defaultdict(list)
        usual = math.inf
        for row in self.rows():
            if "seconds" in row.findings and row.purpose != TRIAL:
                variant, seconds = variant_of(row.arm), row.findings["seconds"]
                usual = row.duration - seconds if variant == BASE else usual
                is_first = variant != BASE and variant not in took
                most = seconds + slower * usual + sum(map(startup_of, variant)) if is_first else math.inf
                took[variant].append(min(row.duration, most))
        return {variant: fmean(durations[-RECENT:]) for variant, durations in took.items()}

    def by_purpose(self) -> dict[str, float]:
        """The seconds of all runs, by purpose; under BETWEEN_RUNS, those between runs."""
        seconds, before = defaultdict[str, float](float), math.inf
        for row in self.rows():
            seconds[row.purpose] += row.duration
            seconds[BETWEEN_RUNS] += min(max(row.began - before, 0.0), BETWEEN)
            before = row.ended or row.began
        return dict(seconds)


def _added(variant: Variant, took: Mapping[Variant, float]) -> float:
    """The most seconds that a setting of a configuration adds to the user's own. ``took``: by configuration, so far."""
    base = took.get(BASE, 0.0)
    added = [
        min((seconds - base for other, seconds in took.items() if setting in other), default=startup_of(setting))
        for setting in variant
    ]
    return max([0.0, *added])


def arm_of(variant: Variant) -> str:
    """The name of a configuration in the ledger."""
    return " ".join(variant) or BASE_ARM


def variant_of(arm: str) -> Variant:
    """The configuration with this name in the ledger."""
    return BASE if arm == BASE_ARM else tuple(arm.split())


def log_seconds(row: RunRow) -> float:
    """The logarithm of the seconds per update in a completed run."""
    return math.log(row.findings["seconds"] / row.findings["updates"])
