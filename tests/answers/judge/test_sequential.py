"""The tests' error rates and intervals, on series drawn from known distributions."""

import math
from itertools import pairwise

import numpy as np
import pytest

from manyheads.runner.answers.measure.hypotheses import spread
from manyheads.runner.answers.measure.sequential import MEAN, PAIRED, SYMMETRIC, intervals, least_rounds
from tests.answers.judge import coverage

SERIES, ROUNDS, ALPHA = 300, 60, 0.05


def excluded(test, draw, *, truth=0.0, scale=1.0):
    """In how many of SERIES one of the looks, after each round, leaves out the truth."""
    numbers = np.random.default_rng(0)
    scaled = np.stack([(draw(numbers) - truth) / scale for _ in range(SERIES)])
    logs = [np.cumsum(test.log_bets(sign * scaled), axis=1) for sign in (1, -1)]
    evidence = [np.logaddexp.reduce(each, axis=2) - math.log(each.shape[2]) for each in logs]
    return int((np.maximum(*evidence).max(axis=1) >= math.log(2 / ALPHA)).sum())


@pytest.mark.parametrize("test", [SYMMETRIC, MEAN, PAIRED])
@pytest.mark.parametrize(
    "draw",
    [
        lambda numbers: numbers.normal(size=ROUNDS),
        lambda numbers: numbers.standard_t(2, size=ROUNDS),
        lambda numbers: numbers.choice([-1, 1], ROUNDS) * np.cumsum(numbers.normal(size=ROUNDS)),  # drifts
        lambda numbers: numbers.choice([-1, 1], ROUNDS) * np.where(numbers.random(ROUNDS) < 0.05, 20, 0.3),  # stalls
    ],
    ids=["normal", "heavy tails", "drift", "stalls"],
)
def test_equal_arms_are_rarely_told_apart_although_one_looks_after_every_round(test, draw):
    assert excluded(test, draw) <= SERIES * ALPHA


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_a_wrong_scale_costs_power_and_not_validity(scale):
    assert excluded(SYMMETRIC, lambda numbers: numbers.normal(size=ROUNDS), scale=scale) <= SERIES * ALPHA


def test_the_interval_holds_the_true_shift():
    assert excluded(SYMMETRIC, lambda numbers: 0.7 + numbers.normal(size=ROUNDS), truth=0.7) <= SERIES * ALPHA


@pytest.mark.parametrize("test", [SYMMETRIC, MEAN, PAIRED])
def test_the_interval_ends_where_the_evidence_does(test):
    differences = 0.7 + np.random.default_rng(4).normal(size=30)
    low, high = intervals(test, differences, scale=2.0, alpha=ALPHA)[-1]
    for shift, holds in ((low - 1e-3, False), (low + 1e-3, True), (high - 1e-3, True), (high + 1e-3, False)):
        looks = [differences[:rounds] - shift for rounds in range(1, 31)]
        most = max(test.log_evidence(sign * each / 2.0) for each in looks for sign in (1, -1))
        assert (most < math.log(2 / ALPHA)) == holds


def test_the_mean_holds_where_arms_have_unlike_shapes():
    """Skewed differences with mean 0 are not symmetric, so the test of symmetry is not meant for them."""
    skewed = lambda numbers: numbers.exponential(size=ROUNDS) - 1  # noqa: E731
    assert excluded(MEAN, skewed) <= SERIES * ALPHA
    assert excluded(PAIRED, skewed) <= SERIES * ALPHA
    assert excluded(SYMMETRIC, skewed) > SERIES * ALPHA


@pytest.mark.parametrize(("effect", "rounds"), [(1.0, 25), (2.0, 10), (50.0, 6)])
def test_an_effect_is_found_within_a_few_rounds(effect, rounds):
    numbers, found = np.random.default_rng(1), []
    for _ in range(20):
        lows = [low for low, _ in intervals(SYMMETRIC, effect + numbers.normal(size=40), scale=1.0, alpha=ALPHA)]
        found.append(next((n for n, low in enumerate(lows, 1) if low > 0), math.inf))
    assert np.median(found) <= rounds


@pytest.mark.parametrize(("correlation", "ratio"), [(0.5, 0.65), (0.8, 0.6), (0.99, 0.55)])
def test_paired_rounds_are_fewer_the_more_the_seed_decides(correlation, ratio):
    numbers, scale = np.random.default_rng(3), np.full(SERIES, math.sqrt(2))
    apart = 1 + numbers.normal(size=(SERIES, 100)) * math.sqrt(2)
    paired = 1 + numbers.normal(size=(SERIES, 100)) * math.sqrt(2 - 2 * correlation)
    unpaired, _ = coverage.first_verdicts(MEAN, apart, scale)
    better, worse = coverage.first_verdicts(PAIRED, paired, scale)
    assert not np.isfinite(worse).any()
    assert np.median(better) <= ratio * np.median(unpaired)


def test_the_least_number_of_rounds_that_can_decide():
    assert least_rounds(SYMMETRIC, 0.05) == 6  # 2^6 > 40
    assert least_rounds(MEAN, 0.05) == 8
    assert least_rounds(PAIRED, 0.05) == 7
    assert all(low == -math.inf for low, _ in intervals(SYMMETRIC, [1e9] * 5, scale=1.0, alpha=0.05))


def test_later_intervals_lie_within_earlier_ones():
    found = intervals(SYMMETRIC, np.random.default_rng(2).normal(size=40), scale=1.0, alpha=ALPHA)
    assert all(a.low <= b.low and b.high <= a.high for a, b in pairwise(found))


def test_the_spread_is_that_of_a_normal_distribution():
    assert spread(np.random.default_rng(3).normal(size=10_000) * 5) == pytest.approx(5, rel=0.05)


def test_of_rounds_of_equal_arms_that_were_measured_few_blocks_are_judged_wrongly():
    """1,030 blocks of 20 rounds: equal arms are told apart in 5 % at most."""
    measured = coverage.series([])
    assert sum(len(each) - 24 for each in measured.values()) == 1030
    assert coverage.wrong(measured.values(), 20) == pytest.approx(0.029, abs=5e-4)
