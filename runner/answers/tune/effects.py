"""Estimates gains of configurations from those that share settings: one that made others faster probably does so again.

The logarithm of an update's seconds is modelled as the sum of an effect of its round, one of each setting, and one of
the configuration itself. The prior of the last two is normal, around 0 except for strategies that save memory: they
rarely save time. With normal noise the posterior mean is linear in the measurements (Gaussian process regression:
Rasmussen and Williams 2006, https://gaussianprocess.org/gpml). Machines stall at times, so runs that were slower than
expected have the heavier tail of Student's t: their weight falls with the distance, in a few passes (iteratively
reweighted least squares: Lange, Little and Taylor 1989, https://doi.org/10.2307/2290063). Nothing makes a run faster by
mistake, so those that were faster count in full.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from manyheads.runner.answers.measure.hypotheses import spread
from manyheads.runner.answers.measure.sequential import BISECTIONS
from manyheads.runner.answers.tune.race import BASE, TIE, Times, Variant
from manyheads.runner.config.candidates import saves_memory

# Prior standard deviations of effects on the logarithm of seconds.
OF_SETTING, OF_CONFIGURATION = 0.2, 0.1
USUAL_NOISE = 0.1  # of a run; the actual noise may well differ by a factor of e
FREEDOM = 4.0  # degrees of freedom of the tail of slow runs
PASSES = 4
DIGITS = 9  # further digits depend on the order of summation


class Gain(NamedTuple):
    """The gain of a configuration over the user's own, in logarithms of seconds: posterior mean and deviation."""

    mean: float
    deviation: float

    @property
    def optimistic(self) -> float:
        """The gain if it is one deviation above its mean."""
        return self.mean + self.deviation


def worth(variant: Variant, gain: Gain) -> float:
    """The expected gain minus TIE for each override, which has to be worth that much."""
    return gain.mean - TIE * len(variant)


def gains(rounds: Sequence[Times], candidates: Sequence[Variant], *, noise: float) -> Mapping[Variant, Gain]:
    """The expected gain of each candidate, measured or not. ``noise``: the standard deviation of a run in its round."""
    prior = {variant: -OF_SETTING if saves_memory(variant) else 0.0 for variant in {*candidates, *chain(*rounds)}}
    measured = [*dict.fromkeys(variant for times in rounds for variant in times)]
    runs = [(number, variant) for number, times in enumerate(rounds) for variant in times]
    seconds = np.array([rounds[number][variant] + prior[variant] for number, variant in runs])
    of_variant = _incidence([[variant] for _, variant in runs], measured)
    of_round = _incidence([[number] for number, _ in runs], range(len(rounds)))
    among_measured, with_measured = _covariance(measured, measured), _covariance(candidates, measured)
    weights = np.ones(len(runs))
    for _ in range(PASSES):
        weighted = weights[:, None] * of_round
        totals, shared = weighted.sum(axis=0), of_variant.T @ weighted
        # Only differences within a round count: the weighted mean of each is taken away.
        precision = (np.diag(weights @ of_variant) - shared @ (shared / totals).T) / noise**2
        explained = (of_variant.T @ (weights * seconds) - shared @ (weighted.T @ seconds / totals)) / noise**2
        system = np.eye(len(measured)) + precision @ among_measured
        rest = seconds - of_variant @ among_measured @ np.linalg.solve(system, explained)
        rest -= of_round @ (weighted.T @ rest / totals)
        weights = 1 / (1 + np.maximum(rest / noise, 0) ** 2 / FREEDOM)
    solved = np.linalg.solve(system, np.column_stack([explained, precision @ with_measured.T]))
    means = with_measured @ solved[:, 0]
    variances = np.array(
        [OF_SETTING**2 * len(variant) + OF_CONFIGURATION**2 * (variant != BASE) for variant in candidates]
    ) - (with_measured * solved[:, 1:].T).sum(axis=1)
    return {
        variant: Gain(round(prior[variant] - float(mean), DIGITS), round(math.sqrt(max(0.0, variance)), DIGITS))
        for variant, mean, variance in zip(candidates, means, variances, strict=True)
    }


def _covariance(some: Sequence[Variant], others: Sequence[Variant]) -> np.ndarray:
    """The prior covariance, (some, others), of two lists of configurations; the user's own has no effects."""
    settings = [*dict.fromkeys(chain(*some, *others))]
    variants = [*dict.fromkeys(variant for variant in (*some, *others) if variant != BASE)]
    own_of_some, own_of_others = ([{variant} - {BASE} for variant in one] for one in (some, others))
    of_settings = OF_SETTING**2 * _incidence(some, settings) @ _incidence(others, settings).T
    return of_settings + OF_CONFIGURATION**2 * _incidence(own_of_some, variants) @ _incidence(own_of_others, variants).T


def _incidence(rows: Sequence[Iterable[Hashable]], columns: Sequence[Hashable]) -> np.ndarray:
    """A matrix, (rows, columns), with a 1 where a row contains what the column is about."""
    column_of = {element: number for number, element in enumerate(columns)}
    matrix = np.zeros((len(rows), len(columns)))
    for number, row in enumerate(rows):
        matrix[number, [column_of[element] for element in row]] = 1
    return matrix


def noise_of(rounds: Sequence[Times], *, floor: float) -> float:
    """The most likely standard deviation of a run in its round, from how well gains repeat.

    ``floor``: how much the user's own configuration differed from itself. The prior of the logarithm of the noise is
    normal around that of USUAL_NOISE with deviation 1, so a few runs that happen to agree do not prove that there is
    none.
    """
    repeated = [
        [times[BASE] - times[variant] for times in rounds if {variant, BASE} <= times.keys()]
        for variant in dict.fromkeys(chain(*rounds))
        if variant != BASE
    ]
    # A gain has the noise of two runs, and a difference of gains that of four.
    deviations = [
        floor,
        *((one - other) / 2 for gains_of_variant in repeated for one, other in pairwise(gains_of_variant)),
    ]
    size, measured = len(deviations), spread(deviations)
    low, high = math.log(1e-4), math.log(10.0)
    for _ in range(BISECTIONS):  # the derivative of the logarithm of the posterior density
        middle = (low + high) / 2
        rises = size * ((measured * math.exp(-middle)) ** 2 - 1) > middle - math.log(USUAL_NOISE)
        low, high = (middle, high) if rises else (low, middle)
    return math.exp(low)
