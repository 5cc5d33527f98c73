import math
from types import SimpleNamespace

import pytest

from manyheads.runner.commands.reproduce.verdict import DIFFERENT, EQUAL, IDENTICAL, decide
from manyheads.runner.records.rounding import ComparedValue

NO_EPOCHS = {"step": []}


def run(losses, *, sha="a", ranks=1, steps=None):
    rows = [float(10 * (row + 1)) for row in range(len(losses))]
    return SimpleNamespace(
        steps={"step": rows, "loss": losses, "grad_norm": [1.0] * len(losses)},
        epochs=NO_EPOCHS,
        config={"trainer": {"evaluate_only": False}},
        result={"steps": steps or 10 * len(losses), "weights_sha256": sha, "world_size": ranks},
    )


def never():
    raise AssertionError("this comparison is not needed")


def verdict(past, now, *, windows=never, weights=lambda: None, second=None):
    return decide(past, now, tolerance=1e-3, weights=weights, windows=windows, second=second)


def window(relative, *, since=44, step=50):
    return since, [ComparedValue("loss", step, 1.0, 1.0 + relative, relative)]


LOSSES = [2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4]
DRIFTING = [2.0, 1.9, 1.8, 1.7, 1.61, 1.4, 1.2]  # rounding, amplified: away at step 50


def test_the_same_weights_are_identical():
    found = verdict(run(LOSSES), run(LOSSES), weights=never)
    assert found.kind == IDENTICAL
    assert "sha256 a" in found.reason


def test_rounding_is_within_tolerance():
    found = verdict(run(LOSSES), run([loss * (1 + 1e-6) for loss in LOSSES], sha="b"))
    assert found.kind == EQUAL
    assert found.rests_on["largest"]["what"] == "loss"
    assert found.rests_on["departure"] is None


def test_an_early_departure_is_a_difference():
    found = verdict(run(LOSSES), run([2.1, *LOSSES[1:]], sha="b"))
    assert found.kind == DIFFERENT
    assert "loss at step 10: 2.1 where 2 was recorded (4.8 %)" in found.reason


@pytest.mark.parametrize(
    ("noise", "nearest", "kind"),
    [(0.1, 0.3, EQUAL), (0.01, 0.04, EQUAL), (0.001, 0.03, DIFFERENT), (1e-5, 1e-4, EQUAL), (0.0, math.inf, DIFFERENT)],
)
def test_where_repetitions_differ_the_recorded_run_may_be_as_far_as_they_are(noise, nearest, kind):
    asked = []

    def second(until):
        asked.append(until)
        recorded, first = (ComparedValue("loss", 10, 1.0, 1.0 + far, far) for far in (nearest, noise))
        return [recorded], [first]

    found = verdict(run(LOSSES), run([2.1, *LOSSES[1:]], sha="b"), second=second)
    assert found.kind == kind, found.reason
    assert asked == [50]
    apart = found.rests_on["second_repetition"]
    assert (apart["noise"], apart["nearest"]) == (noise, pytest.approx(min(nearest, 0.1 / 2.1)))


def departing(evaluation):
    """A repetition whose losses are the recorded ones, but not its evaluation after step 10."""
    past, now = run(LOSSES), run(LOSSES, sha="b")
    tables = [{"step": [10.0], "train_loss": [1.5], "val_loss": [each]} for each in (1.0, evaluation)]
    past.epochs, now.epochs = tables
    return past, now


@pytest.mark.parametrize(("noise", "kind"), [(1e-6, DIFFERENT), (0.05, EQUAL)])
def test_where_repetitions_differ_evaluations_count_too(noise, kind):
    asked = []

    def second(until):
        asked.append(until)
        return [ComparedValue("val_loss", 10, 1.0, 1.1, 0.1)], [ComparedValue("val_loss", 10, 1.1, 1.1, noise)]

    assert verdict(*departing(1.1), second=second).kind == kind
    assert asked == [50]


def test_where_repetitions_differ_weights_that_alone_depart_early_are_a_difference():
    short = LOSSES[:1]
    far = ComparedValue("weights head.bias", 10, 1.0, 2.0, 0.5)
    assert verdict(run(short), run(short, sha="b"), weights=lambda: far, second=never).kind == DIFFERENT


def test_where_repetitions_differ_a_late_departure_is_decided_by_windows():
    made = dict([window(0.3, since=22), window(1e-7, step=45)])
    assert verdict(run(LOSSES), run(DRIFTING, sha="b"), windows=lambda: made, second=never).kind == EQUAL
    evaluation = {70: [ComparedValue("val_loss", 70, 1.0, 1.1, 0.1)]}
    assert verdict(run(LOSSES), run(DRIFTING, sha="b"), windows=lambda: evaluation, second=never).kind == DIFFERENT


def test_with_other_ranks_it_says_who_tells_why():
    assert "parity" in verdict(run(LOSSES), run([2.1, *LOSSES[1:]], sha="b", ranks=2)).reason


def test_a_loss_that_is_not_finite_is_a_difference():
    assert verdict(run(LOSSES), run([math.nan, *LOSSES[1:]], sha="b")).kind == DIFFERENT


@pytest.mark.parametrize(("relative", "kind"), [(1e-6, EQUAL), (1e-2, DIFFERENT), (math.inf, DIFFERENT)])
def test_of_a_late_departure_the_recorded_weights_decide(relative, kind):
    replayed = dict([window(1e-7, since=22), window(relative)])
    found = verdict(run(LOSSES), run(DRIFTING, sha="b"), windows=lambda: replayed)
    assert found.kind == kind
    assert found.rests_on["departure"]["step"] == 50
    assert [one["since"] for one in found.rests_on["windows"]] == [22, 44]


def test_without_checkpoints_a_late_departure_stays_unexplained():
    found = verdict(run(LOSSES), run(DRIFTING, sha="b"), windows=dict)
    assert found.kind == DIFFERENT
    assert "no checkpoint" in found.reason


@pytest.mark.parametrize(("relative", "kind"), [(1e-6, EQUAL), (1e-2, DIFFERENT)])
def test_with_other_ranks_the_recorded_weights_decide_in_any_case(relative, kind):
    now = run([loss * (1 + 1e-6) for loss in LOSSES], sha="b", ranks=3)
    assert verdict(run(LOSSES), now, windows=lambda: dict([window(relative)])).kind == kind


def test_without_checkpoints_other_ranks_are_judged_by_the_curve():
    now = run([loss * (1 + 1e-6) for loss in LOSSES], sha="b", ranks=3)
    assert verdict(run(LOSSES), now, windows=dict).kind == EQUAL


def test_final_weights_count():
    now = run(LOSSES, sha="b")
    far = ComparedValue("weights head.bias", 70, 1.0, 2.0, 0.5)
    assert verdict(run(LOSSES), now, weights=lambda: far, windows=lambda: dict([window(1e-6)])).kind == EQUAL
    assert verdict(run(LOSSES), now, weights=lambda: far, windows=dict).kind == DIFFERENT


class TestOfTheFirstSteps:
    def test_equal_to_the_last_digit_is_identical(self):
        found = verdict(run(LOSSES), run(LOSSES[:3], sha="b"), weights=never)
        assert (found.kind, found.rests_on["until_step"]) == (IDENTICAL, 30)

    def test_rounding_is_within_tolerance(self):
        assert verdict(run(LOSSES), run([2.000001, 1.9, 1.8], sha="b"), weights=never).kind == EQUAL

    def test_a_departure_is_a_difference(self):
        assert verdict(run(LOSSES), run([2.0, 2.0, 1.8], sha="b"), weights=never).kind == DIFFERENT


def test_nothing_in_common_is_no_proof():
    now = run(LOSSES, sha="b", steps=71)
    now.steps["step"] = [step + 1 for step in now.steps["step"]]
    assert verdict(run(LOSSES), now).kind == DIFFERENT


@pytest.mark.parametrize(
    ("val_loss", "val_acc1", "kind"),
    [
        (0.5, 90.0, IDENTICAL),
        (0.5000001, 90.0, EQUAL),
        (0.5, 89.0, EQUAL),
        (0.51, 90.0, DIFFERENT),
        (0.5, 80.0, DIFFERENT),
        (math.nan, 90.0, DIFFERENT),
    ],
)
def test_of_evaluations_the_metrics_count(val_loss, val_acc1, kind):
    """Their weights were given, and say nothing."""
    past, now = run([]), run([])
    past.config = {"trainer": {"evaluate_only": True}}
    for one, metrics in ((past, (0.5, 90.0)), (now, (val_loss, val_acc1))):
        one.result |= {"steps": 0, "metrics": {"val_loss": metrics[0], "val_acc1": metrics[1], "val_samples": 100}}
        one.result |= {"scores": {"metrics": {"acc1": {"unit": "%"}}}}
    assert verdict(past, now).kind == kind


def test_of_evaluations_two_that_are_not_a_number_are_the_same():
    past, now = run([]), run([])
    past.config = {"trainer": {"evaluate_only": True}}
    for one in (past, now):
        one.result |= {"steps": 0, "metrics": {"val_loss": math.nan, "val_acc1": 10.0, "val_samples": 100}}
    assert verdict(past, now).kind == IDENTICAL
