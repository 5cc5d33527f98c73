"""Tests that may be looked at after every round and stopped at any time, and the intervals that belong to them.

A round gives one difference x, positive where the change is better. Each side of a test is a bet that starts with 1 and
cannot grow on average while its null holds, so it ever reaches 1 / alpha with probability alpha at most (Ville 1939).
It is a mixture over strengths, whose bets are products over the rounds, so no strength has to be chosen in advance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

STRENGTHS = np.geomspace(1 / 16, 16, 17)
FRACTIONS = np.array([1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.75, 0.9, 0.99])
CLIP = 5.0  # scales
BISECTIONS = 40


class Interval(NamedTuple):
    """Where the effect lies, with the error rate of its test; infinite before the first rounds have narrowed it."""

    low: float
    high: float


@dataclass(frozen=True)
class Test:
    """``null``: what is true of equal arms, in words. ``log_bets``: (rounds, strengths), from scaled differences."""

    null: str
    log_bets: Callable[[np.ndarray], np.ndarray]

    def log_evidence(self, scaled: np.ndarray) -> float:
        """Logarithm of the evidence that the differences, in units of the scale, are positive."""
        logs = self.log_bets(scaled).sum(axis=0)
        return float(np.logaddexp.reduce(logs) - math.log(len(logs)))


def _symmetric(scaled: np.ndarray) -> np.ndarray:
    """2 * sigmoid(2 l x): given |x|, the mean over both signs is 1."""
    return math.log(2) - np.logaddexp(0, -2 * np.multiply.outer(scaled, STRENGTHS))


def _bounded(scaled: np.ndarray) -> np.ndarray:
    """1 + g x, with x clipped to -1..1: Waudby-Smith and Ramdas 2023, https://arxiv.org/abs/2010.09686."""
    return np.log1p(np.multiply.outer(np.clip(scaled / CLIP, -1, 1), FRACTIONS))


SYMMETRIC = Test(
    "if the change has no effect at all, each round's difference is as likely as its opposite, since a coin decides "
    "which arm runs first",
    _symmetric,
)
MEAN = Test(
    f"if the change has no effect on the mean, differences (those beyond {CLIP:g} times the noise floor are cut off "
    "there) are 0 on average, however their spread differs",
    _bounded,
)
TESTS = {"symmetric": SYMMETRIC, "mean": MEAN}


def least_rounds(test: Test, alpha: float) -> int:
    """The smallest number of rounds after which ``test`` can decide anything: with a huge effect in each."""
    rounds = 1
    while test.log_evidence(np.full(rounds, 1e6)) < math.log(2 / alpha):
        rounds += 1
    return rounds


def intervals(test: Test, differences: Sequence[float], *, scale: float, alpha: float) -> list[Interval]:
    """The interval after each round; each lies within those before it.

    It holds the shifts that no look so far has excluded. With probability 1 - alpha it never leaves out the true one,
    if that is the same in every round. ``scale``: the spread of equal arms, which must not depend on these rounds.
    """
    scaled = np.asarray(differences, dtype=float) / scale
    found, low, high = [], -math.inf, math.inf
    for rounds in range(1, len(scaled) + 1):
        seen = scaled[:rounds]
        low, high = lower_bound(test, seen, alpha, known=low), -lower_bound(test, -seen, alpha, known=-high)
        found.append(Interval(low * scale, high * scale))
    return found


def lower_bound(test: Test, scaled: np.ndarray, alpha: float, *, known: float) -> float:
    """The largest shift for which there is evidence that the differences lie above it, at least ``known``."""
    threshold = math.log(2 / alpha)  # half of the error for each side
    low, high = max(known, float(scaled.min()) - 4 * CLIP), float(scaled.max())
    if low >= high or test.log_evidence(scaled - low) < threshold:
        return known
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if test.log_evidence(scaled - middle) >= threshold else (low, middle)
    return low


def spread(differences: Sequence[float]) -> float:
    """The scale of differences between equal arms: their median absolute value, as a normal standard deviation."""
    return 1.4826 * float(np.median(np.abs(differences)))
