"""Interleaved rounds of several candidates, as ratios to the first with their spread."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS_FOR_INTERVAL = 20


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
        each = self._ratios(name, other)
        return statistics.median(each), each[0], each[-1]

    def interval(self, name: str, other: str) -> tuple[float, float] | None:
        """Where the median of this ratio is with 95 % confidence, whatever its distribution; None below 20 rounds.

        Source: Hahn and Meeker, Statistical Intervals, section 5.3; ranks by the binomial distribution.
        """
        each = self._ratios(name, other)
        if (count := len(each)) < ROUNDS_FOR_INTERVAL:
            return None
        tail, outside = 0.0, 0
        while (tail := tail + math.comb(count, outside) / 2**count) <= 0.025:
            outside += 1
        return each[outside - 1], each[count - outside]

    def _ratios(self, name: str, other: str) -> list[float]:
        """The ratio in each round, the smallest first."""
        return sorted(mine / theirs for mine, theirs in zip(self.seconds[name], self.seconds[other], strict=True))


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
