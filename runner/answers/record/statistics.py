"""Summary statistics and t-tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

SIGNIFICANT = 0.01  # the level that https://github.com/KellerJordan/modded-nanogpt requires of a record


@dataclass(frozen=True)
class Spread:
    """Summary of ``n`` numbers. ``deviation``: their standard deviation; 0 for a single number."""

    n: int
    mean: float
    deviation: float
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The summary of at least one number."""
        deviation = stdev(values) if len(values) > 1 else 0.0
        return cls(len(values), fmean(values), deviation, median(values), min(values), max(values))


def p_of_target(values: Sequence[float], target: float, *, is_higher_better: bool) -> float | None:
    """The probability of a mean this good or better if the recipe's true mean just missed the target.

    By a one-sided Student's t-test. None for fewer than two values.
    """
    sample = Spread.of(values)
    if sample.n < 2:
        return None
    ahead = (sample.mean - target) * (1 if is_higher_better else -1)
    if sample.deviation == 0:
        return 0.0 if ahead > 0 else 1.0
    from scipy.stats import t

    return float(t.sf(ahead / (sample.deviation / math.sqrt(sample.n)), sample.n - 1))


def p_of_difference(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The probability of means that differ at least this much if the true means are equal.

    By a two-sided Welch's t-test. None for fewer than two values, and if all values are equal.
    """
    if min(len(one), len(other)) < 2 or len({*one, *other}) == 1:
        return None
    from scipy.stats import ttest_ind

    return float(ttest_ind(one, other, equal_var=False).pvalue)
