"""Rounds in which several configurations ran one after another, and what they show about which is faster."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np

from manyheads.runner.answers.measure.sequential import SYMMETRIC, Interval, least_rounds, lower_bound

Variant = tuple[str, ...]  # the overrides that are added to the user's, in alphabetical order
TIE = 0.01  # a gain in the logarithm of seconds that is not worth another override
BASE: Variant = ()  # the user's own configuration
Times = Mapping[Variant, float]  # of one round: logarithms of the seconds of an update


@dataclass
class Race:
    """Rounds of ``count`` configurations, and intervals for the gain of each over each other.

    ``scale``: the spread of equal configurations, from rounds that are not among these. ``alpha``: with probability 1 -
    ``alpha`` all intervals of all pairs are right, however often one looks. So the same rounds may be used to choose a
    configuration and to compare it.
    """

    scale: float
    alpha: float
    count: int
    rounds: list[Times] = field(default_factory=list)
    _shown: dict[tuple[Variant, Variant], float] = field(default_factory=dict)

    def gains(self, one: Variant, other: Variant) -> list[float]:
        """How much faster ``one`` was, in each round in which both ran: the logarithm of the ratio of their seconds."""
        return [times[other] - times[one] for times in self.rounds if {one, other} <= times.keys()]

    def shows(self, one: Variant, other: Variant, *, above: float = 0.0) -> bool:
        """Whether the rounds show that the gain of ``one`` over ``other`` is larger than ``above``."""
        bound = self._shown.get((one, other), -math.inf)
        if bound < above and (gains := self.gains(one, other)):
            evidence = SYMMETRIC.log_evidence((np.asarray(gains) - above) / self.scale)
            if evidence >= math.log(2 / self._alpha_of_pair):
                bound = self._shown[one, other] = above
        return bound >= above

    def interval(self, one: Variant, other: Variant) -> Interval:
        """The interval of the gain of ``one`` over ``other``."""
        return Interval(self._low(one, other), -self._low(other, one))

    def _low(self, one: Variant, other: Variant) -> float:
        bound = self._shown.get((one, other), -math.inf)
        if not (gains := self.gains(one, other)):
            return bound
        scaled = np.asarray(gains) / self.scale
        low = lower_bound(SYMMETRIC, scaled, self._alpha_of_pair, bound=bound / self.scale)
        return max(bound, self.scale * low)

    @property
    def least_rounds(self) -> int:
        """The smallest number of rounds that can show which of two configurations is faster."""
        return least_rounds(SYMMETRIC, self._alpha_of_pair)

    @property
    def _alpha_of_pair(self) -> float:
        return 2 * self.alpha / max(self.count * (self.count - 1), 2)

    def leader(self, among: Sequence[Variant]) -> Variant:
        """The fastest by the median over the rounds in which all of them ran; among those within TIE, the simplest."""
        common = [times for times in self.rounds if times.keys() >= {*among}]
        if not common:
            return among[0]
        averages = [fmean(times[variant] for variant in among) for times in common]  # to remove a drift between rounds
        seconds = {
            variant: median(times[variant] - average for times, average in zip(common, averages, strict=True))
            for variant in among
        }
        near = [variant for variant in among if seconds[variant] <= min(seconds.values()) + TIE]
        return min(near, key=lambda variant: (len(variant), seconds[variant]))

    def best_two(self, among: Sequence[Variant]) -> list[Variant]:
        """The leader, and the leader of the others."""
        first = self.leader(among)
        others = [variant for variant in among if variant != first]
        return [first, self.leader(others)] if others else [first]

    def regret(self, chosen: Variant, others: Collection[Variant]) -> float:
        """The most by which ``chosen`` may be slower than the fastest of the others, as a fraction of its seconds."""
        behind = [-self._low(chosen, other) for other in others if other != chosen]
        return max(0.0, -math.expm1(-max(behind, default=0.0)))
