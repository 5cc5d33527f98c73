"""What rounds tell of configurations that share settings: one that made others faster is likely to do so again.

The logarithm of an update's seconds is the sum of what its round has in common, an effect of each setting, and one of
the configuration alone. Before anything is measured, these effects are normally distributed around 0, so what is
expected afterwards is linear in what was measured (Rasmussen and Williams 2006, https://gaussianprocess.org/gpml).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from manyheads.runner.commands.tune.race import BASE, TIE, Times, Variant
from manyheads.runner.judge.sequential import BISECTIONS, spread

# Standard deviations of effects on the logarithm of seconds before anything is measured.
OF_SETTING, OF_CONFIGURATION = 0.2, 0.1
USUAL_NOISE = 0.1  # of a run; what it is may well differ from that by a factor of e
DIGITS = 9  # beyond which numbers depend on the order of summation


class Gain(NamedTuple):
    """How much faster than the user's own configuration one is expected to be, and the uncertainty of that."""

    mean: float
    deviation: float

    @property
    def optimistic(self) -> float:
        return self.mean + self.deviation


def worth(variant: Variant, gain: Gain) -> float:
    """The expected gain, of which each override has to bring TIE."""
    return gain.mean - TIE * len(variant)


def gains(rounds: Sequence[Times], candidates: Sequence[Variant], *, noise: float) -> Mapping[Variant, Gain]:
    """Of each candidate, measured or not. ``noise``: the deviation of a run within its round."""
    measured = [*dict.fromkeys(each for times in rounds for each in times)]
    place = {each: number for number, each in enumerate(measured)}
    precision, seconds = np.zeros((len(measured), len(measured))), np.zeros(len(measured))
    for times in rounds:  # of which only the differences count
        own, found = [place[each] for each in times], np.array([*times.values()])
        precision[np.ix_(own, own)] += (np.eye(len(own)) - 1 / len(own)) / noise**2
        seconds[own] += (found - found.mean()) / noise**2
    with_measured = _covariance(candidates, measured)
    system = np.eye(len(measured)) + precision @ _covariance(measured, measured)
    solved = np.linalg.solve(system, np.column_stack([seconds, precision @ with_measured.T]))
    means = with_measured @ solved[:, 0]
    variances = np.diag(_covariance(candidates, candidates)) - (with_measured * solved[:, 1:].T).sum(axis=1)
    return {
        each: Gain(round(-float(mean), DIGITS), round(math.sqrt(max(0.0, variance)), DIGITS))
        for each, mean, variance in zip(candidates, means, variances, strict=True)
    }


def _covariance(some: Sequence[Variant], others: Sequence[Variant]) -> np.ndarray:
    """Of the effects of two lists of configurations; the user's own has none."""
    names = {setting: number for number, setting in enumerate({each: 0 for one in (*some, *others) for each in one})}

    def has(variants: Sequence[Variant]) -> np.ndarray:
        found = np.zeros((len(variants), len(names)))
        for row, each in enumerate(variants):
            found[row, [names[setting] for setting in each]] = 1
        return found

    known = {each: number for number, each in enumerate(dict.fromkeys((*some, *others)))}
    own = [np.array([known[each] if each != BASE else -1 for each in variants]) for variants in (some, others)]
    is_same = np.equal.outer(*own) & (own[0] >= 0)[:, None] if some and others else np.zeros((len(some), len(others)))
    return OF_SETTING**2 * has(some) @ has(others).T + OF_CONFIGURATION**2 * is_same


def noise_of(rounds: Sequence[Times], *, floor: float) -> float:
    """The most likely deviation of a run within its round, as gains repeat themselves.

    ``floor``: what the user's own configuration differed by from itself. Before anything is measured, the logarithm of
    the noise is normally distributed around that of USUAL_NOISE with deviation 1, so a few runs that happen to agree do
    not prove that there is none.
    """
    variants = {each: 0 for times in rounds for each in times if each != BASE}
    repeated = [[times[BASE] - times[each] for times in rounds if {each, BASE} <= times.keys()] for each in variants]
    # A gain has the noise of two runs, and a difference of gains that of four.
    found = [floor, *((one - other) / 2 for own in repeated for one, other in pairwise(own))]
    size, measured = len(found), spread(found)
    low, high = math.log(1e-4), math.log(10.0)
    for _ in range(BISECTIONS):  # the derivative of the logarithm of the posterior density
        middle = (low + high) / 2
        rises = size * ((measured * math.exp(-middle)) ** 2 - 1) > middle - math.log(USUAL_NOISE)
        low, high = (middle, high) if rises else (low, middle)
    return math.exp(low)
