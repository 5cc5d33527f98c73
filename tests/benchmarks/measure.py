"""Interleaved rounds of several candidates, as ratios to the first with their spread."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Seconds of each round; ``baseline`` names the candidate that the others are divided by."""

    name: str
    baseline: str
    seconds: dict[str, list[float]]

    def ratios(self) -> dict[str, tuple[float, float, float]]:
        """Median, smallest and largest ratio of each candidate, round by round."""
        return {name: self.ratio(name, self.baseline) for name in self.seconds}

    def ratio(self, name: str, other: str) -> tuple[float, float, float]:
        """The same of two candidates."""
        each = [mine / theirs for mine, theirs in zip(self.seconds[name], self.seconds[other], strict=True)]
        return statistics.median(each), min(each), max(each)


def compare(name: str, candidates: dict[str, Callable[[], float]], *, rounds: int, warm_up: bool = True) -> Comparison:
    """Call each candidate once a round, in turn; each returns its seconds. The first is the baseline.

    ``warm_up``: call each once before, which those that are fresh processes do not need.
    """
    seconds: dict[str, list[float]] = {key: [] for key in candidates}
    for candidate in candidates.values() if warm_up else ():
        candidate()
    for _ in range(rounds):
        for key, candidate in candidates.items():
            seconds[key].append(candidate())
    return Comparison(name, next(iter(candidates)), seconds)
