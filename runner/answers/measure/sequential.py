"""Anytime-valid tests: they may be looked at after every round and stopped at any time; and their intervals.

A round gives one difference x, positive if the change is better. Each side of a test is a bet with initial wealth 1,
which does not grow on average while the null hypothesis holds, so the probability that it ever reaches 1 / alpha is at
most alpha (Ville 1939). The bet is a mixture over strengths, each a product over the rounds, so that no strength has to
be chosen in advance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyheads.runner.answers.measure.hypotheses import CLIP, PAIRED_CLIP

STRENGTHS = np.geomspace(1 / 16, 16, 17)
FRACTIONS = np.array([1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.75, 0.9, 0.99])
PAIRED_FRACTIONS = np.array([1 / 4, 0.99])
RANGED = 3  # rounds before a range
BISECTIONS = 40


class Interval(NamedTuple):
    """A confidence interval of the effect; an end is infinite while the rounds do not bound it."""

    low: float
    high: float


@dataclass(frozen=True)
class Test:
    """A one-sided test.

    ``log_bets``: from the differences in units of the scale, of shape (rounds,), the logarithms of the bets' factors,
    of shape (rounds, strengths).
    """

    log_bets: Callable[[np.ndarray], np.ndarray]

    def log_evidence(self, scaled: np.ndarray) -> float:
        """The logarithm of the evidence that the differences, in units of the scale, are positive."""
        logs = self.log_bets(scaled).sum(axis=0)
        return float(np.logaddexp.reduce(logs) - math.log(len(logs)))


def _symmetric(scaled: np.ndarray) -> np.ndarray:
    """2 * sigmoid(2 l x): given |x|, the mean over both signs is 1."""
    return math.log(2) - np.logaddexp(0, -2 * np.multiply.outer(scaled, STRENGTHS))


def _bounded(scaled: np.ndarray) -> np.ndarray:
    """1 + g x, with x clipped to -1..1: Waudby-Smith and Ramdas 2023, https://arxiv.org/abs/2010.09686."""
    return np.log1p(np.multiply.outer(np.clip(scaled / CLIP, -1, 1), FRACTIONS))


def _paired(scaled: np.ndarray) -> np.ndarray:
    """As _bounded, but clipped at the range of the rounds before, within PAIRED_CLIP..CLIP.

    Whatever is known before a round may choose its bet. The range is the same for shifted and for opposite differences.
    """
    clip = np.full_like(scaled, CLIP)
    ranges = np.maximum.accumulate(scaled, axis=-1) - np.minimum.accumulate(scaled, axis=-1)
    clip[..., RANGED:] = np.clip(ranges[..., RANGED - 1 : -1], PAIRED_CLIP, CLIP)
    return np.log1p(np.multiply.outer(np.clip(scaled / clip, -1, 1), PAIRED_FRACTIONS))


SYMMETRIC, MEAN, PAIRED = Test(_symmetric), Test(_bounded), Test(_paired)
TESTS = {"symmetric": SYMMETRIC, "mean": MEAN, "paired": PAIRED}  # see NULLS


def least_rounds(test: Test, alpha: float) -> int:
    """The smallest number of rounds after which ``test`` can decide, however large the effect is."""
    rounds = 1
    while test.log_evidence(np.full(rounds, 1e6)) < math.log(2 / alpha):
        rounds += 1
    return rounds


def intervals(test: Test, differences: Sequence[float], *, scale: float, alpha: float) -> list[Interval]:
    """The interval after each round: the effects that no look so far has excluded, so each lies within the one before.

    With probability 1 - alpha, all of them contain the true effect, if that is the same in every round. ``scale``: the
    spread of differences between equal arms, which must not depend on these rounds.
    """
    scaled = np.asarray(differences, dtype=float) / scale
    bounds, low, high = [], -math.inf, math.inf
    for rounds in range(1, len(scaled) + 1):
        seen = scaled[:rounds]
        low, high = lower_bound(test, seen, alpha, bound=low), -lower_bound(test, -seen, alpha, bound=-high)
        bounds.append(Interval(low * scale, high * scale))
    return bounds


def lower_bound(test: Test, scaled: np.ndarray, alpha: float, *, bound: float) -> float:
    """The largest shift above which the differences demonstrably lie, but at least ``bound``: the bound so far."""
    threshold = math.log(2 / alpha)  # half of the error for each side
    low, high = max(bound, float(scaled.min()) - 4 * CLIP), float(scaled.max())
    if low >= high or test.log_evidence(scaled - low) < threshold:
        return bound
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if test.log_evidence(scaled - middle) >= threshold else (low, middle)
    return low
