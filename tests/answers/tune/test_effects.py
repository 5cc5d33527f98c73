"""What is expected of configurations, from rounds whose truth is known."""

import random

import numpy as np
import pytest

from manyheads.runner.answers.tune import effects
from manyheads.runner.answers.tune.effects import OF_CONFIGURATION, OF_SETTING, USUAL_NOISE, gains, noise_of, worth
from manyheads.runner.answers.tune.race import BASE

A, B, BOTH = ("a=1",), ("b=1",), ("a=1", "b=1")
NORMAL = 1e12  # degrees of freedom
PRIOR = (OF_SETTING**2 + OF_CONFIGURATION**2) ** 0.5


def test_before_any_round_nothing_is_expected_and_more_settings_are_less_certain():
    found = gains([], [BASE, A, BOTH], noise=0.1)
    assert [each.mean for each in found.values()] == [0, 0, 0]
    assert found[BASE].deviation == 0
    assert found[A].deviation == pytest.approx(PRIOR)
    assert found[A].deviation < found[BOTH].deviation


def test_what_was_measured_often_is_expected_again_whatever_its_rounds_have_in_common():
    rounds = [{BASE: drift, A: drift - 0.3} for drift in (0.0, 5.0, -2.0) * 20]
    found = gains(rounds, [A], noise=0.05)[A]
    assert found.mean == pytest.approx(0.3, abs=0.01)
    assert found.deviation < 0.02


def test_a_single_noisy_round_is_believed_in_part(monkeypatch):
    monkeypatch.setattr(effects, "FREEDOM", NORMAL)
    found = gains([{BASE: 0.0, A: -0.3}], [A], noise=0.2)[A]
    weight = PRIOR**2 / (PRIOR**2 + 2 * 0.2**2)
    assert found.mean == pytest.approx(0.3 * weight)
    assert found.deviation == pytest.approx(PRIOR * (1 - weight) ** 0.5)


@pytest.mark.parametrize("stalled", [BASE, A])
def test_a_run_that_stalls_counts_little(stalled):
    rounds = [{BASE: 0.0, A: -0.1, B: -0.2} for _ in range(4)]
    calm = gains(rounds, [A, B], noise=0.05)
    found = gains([*rounds, {**rounds[0], stalled: 3.0}], [A, B], noise=0.05)
    for each in (A, B):
        assert found[each].mean == pytest.approx(calm[each].mean, abs=0.03)


def test_settings_that_gain_alone_are_expected_to_gain_together():
    rounds = [{BASE: 0.0, A: -0.3, B: -0.2}] * 10
    found = gains(rounds, [A, B, BOTH, ("c=1",)], noise=0.05)
    assert found[BOTH].mean == pytest.approx(0.8 * 0.5, abs=0.02)  # a part of each may be its configuration's own
    assert found[BOTH].mean > found[A].mean > found[B].mean > found[("c=1",)].mean
    assert found[BOTH].deviation > found[A].deviation


def test_it_is_the_posterior_of_the_model(monkeypatch):
    """Compared with conditioning on all runs at once."""
    monkeypatch.setattr(effects, "FREEDOM", NORMAL)
    drawn = random.Random(1)
    rounds = [{each: drawn.gauss(0, 1) for each in drawn.sample([BASE, A, B, BOTH], 3)} for _ in range(6)]
    runs = [(number, each) for number, times in enumerate(rounds) for each in times]
    seconds = np.array([times[each] for times in rounds for each in times])

    def shared(one, other):
        return OF_SETTING**2 * len({*one} & {*other}) + OF_CONFIGURATION**2 * (one == other != BASE)

    drift, noise = 1e3, 0.1
    prior = np.array([[shared(one, other) + drift**2 * (n == m) for m, other in runs] for n, one in runs])
    inverse = np.linalg.inv(prior + noise**2 * np.eye(len(runs)))
    for each, found in gains(rounds, [A, B, BOTH], noise=noise).items():
        with_runs = np.array([shared(each, other) for _, other in runs])
        assert found.mean == pytest.approx(-with_runs @ inverse @ seconds, abs=1e-4)
        assert found.deviation**2 == pytest.approx(shared(each, each) - with_runs @ inverse @ with_runs, abs=1e-4)


def test_the_noise_is_how_well_gains_repeat_themselves():
    drawn = random.Random(2)
    for noise in (0.003, 0.1, 0.3):
        rounds = [{each: number + drawn.gauss(0, noise) for each in (BASE, A, B)} for number in range(200)]
        assert noise_of(rounds, floor=9.0) == pytest.approx(noise, rel=0.15)


def test_two_runs_that_happen_to_agree_are_no_proof_that_there_is_no_noise():
    assert 0.02 < noise_of([], floor=0.0001) < USUAL_NOISE
    assert noise_of([], floor=0.2) > USUAL_NOISE
    again = [{BASE: 0.0, A: -0.3, B: -0.2}] * 10
    assert noise_of(again, floor=0.0001) < 0.02


def test_each_override_has_to_pay():
    found = gains([{BASE: 0.0, A: -0.3, BOTH: -0.3}] * 50, [A, BOTH], noise=0.01)
    assert worth(A, found[A]) > worth(BOTH, found[BOTH])
