"""How many records noise sets, against simulated logs of changes that do nothing."""

import random

import pytest

from manyheads.runner.answers.judge.log.read_log import LoggedTrial
from manyheads.runner.answers.judge.log.records import at_least, chances, gains, quantile, unexplained

LOGS, CHANGES, SIDE = 1000, 60, 0.05


def search(rng: random.Random, *, helps: int | None = None, count: int = CHANGES) -> list[LoggedTrial]:
    """A log that keeps each best value. helps: the change from which values are better by three deviations."""
    best, trials = float("inf"), []
    for number in range(count + 1):
        value = rng.gauss(-3.0 if helps is not None and number >= helps else 0.0, 1.0)
        trials.append(LoggedTrial(number + 2, value, value < best, f"change {number}"))
        best = min(best, value)
    return trials


def kept(trials: list[LoggedTrial]) -> int:
    return sum(trial.is_kept for trial in trials[1:])


def test_of_111_changes_that_do_nothing_4_are_kept():
    distribution = chances([111])
    assert sum(number * chance for number, chance in enumerate(distribution)) == pytest.approx(4.3, abs=0.01)
    assert (quantile(distribution, SIDE), quantile(distribution, 1 - SIDE)) == (1, 8)


def test_the_number_of_records_is_that_of_simulated_logs():
    rng, distribution = random.Random(0), chances([CHANGES])
    counts = [kept(search(rng)) for _ in range(LOGS)]
    for number in range(8):
        expected = LOGS * distribution[number]
        assert counts.count(number) == pytest.approx(expected, abs=4 * expected**0.5 + 4)


def test_each_section_has_its_own_baseline():
    one, two = chances([3]), chances([3, 3])
    assert two[2] == pytest.approx(sum(one[number] * one[2 - number] for number in range(3)))


def test_a_change_that_does_nothing_is_rarely_unexplained():
    rng = random.Random(1)
    logs = [[*gains(search(rng), lower_is_better=True)] for _ in range(LOGS)]
    every = [gain.probability for log in logs for gain in log]
    for rate in (0.01, 0.05, 0.2):
        assert sum(probability <= rate for probability in every) <= rate * len(every)
    assert sum(bool(unexplained(log, 0.05)) for log in logs) <= 0.05 * LOGS


def test_a_change_that_helps_is_named():
    rng, named = random.Random(2), 0
    for _ in range(100):
        trials = search(rng, helps=30)
        first = next(trial.line for trial in trials[30:] if trial.is_kept)
        named += any(first in gain.lines for gain in unexplained([*gains(trials, lower_is_better=True)], 0.05))
    assert named >= 75


@pytest.mark.parametrize("lower_is_better", [True, False])
def test_records_close_together_are_one_gain_and_all_kept_ones_are_in_one(lower_is_better):
    sign = 1 if lower_is_better else -1
    values = [5.0, 6.0, 4.0, 7.0, 3.0, 3.5, 4.5, 7.0, 8.0, 9.0, 2.0]
    trials = [LoggedTrial(number, sign * value, value in (5, 4, 3, 2), "") for number, value in enumerate(values, 1)]
    first, last = gains(trials, lower_is_better=lower_is_better)
    assert (first.lines, first.before, first.value, first.after, first.better) == ([3, 5], sign * 5.0, sign * 3.0, 6, 2)
    assert (last.lines, last.after, last.probability) == ([11], 0, 1)


def test_after_one_record_the_probability_is_a_product_over_the_best_ranks():
    assert at_least(3, range(4, 10), {4}) == pytest.approx(5 / 9 * 4 / 8 * 3 / 7)


def test_the_probability_is_that_of_simulated_logs_with_the_same_records():
    rng, better = random.Random(3), []
    while len(better) < LOGS:
        values = [rng.random() for _ in range(6)]
        if [place for place in range(1, 6) if values[place] > max(values[:place])] == [2, 4]:
            better.append(sum(values[place] > values[0] for place in (3, 5)))
    for number in (1, 2):
        simulated = sum(count >= number for count in better) / LOGS
        assert at_least(number, range(2, 6), {2, 4}) == pytest.approx(simulated, abs=0.05)
