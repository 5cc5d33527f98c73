"""Against scipy's own tests, and by hand."""

import pytest

from manyheads.runner.answers.record.evidence import Spread, p_of_difference, p_of_target

VALUES = [94.1, 93.9, 94.3, 94.05, 94.2]


@pytest.mark.parametrize(("is_higher_better", "alternative"), [(True, "greater"), (False, "less")])
def test_the_target_s_probability_is_that_of_a_t_test(is_higher_better, alternative):
    from scipy.stats import ttest_1samp

    expected = ttest_1samp(VALUES, 94, alternative=alternative).pvalue
    assert p_of_target(VALUES, 94, is_higher_better=is_higher_better) == pytest.approx(expected, rel=1e-12)


def test_equal_runs_reach_a_target_or_do_not():
    assert p_of_target([95.0, 95.0], 94, is_higher_better=True) == 0
    assert p_of_target([94.0, 94.0], 94, is_higher_better=True) == 1


def test_one_run_shows_nothing():
    assert p_of_target([99.0], 94, is_higher_better=True) is None
    assert p_of_difference([1.0], [2.0, 3.0]) is None


def test_a_difference_is_that_of_welch():
    from scipy.stats import ttest_ind

    other = [1.0, 2.5, 2.0]
    assert p_of_difference(VALUES, other) == ttest_ind(VALUES, other, equal_var=False).pvalue


def test_the_spread():
    assert Spread.of([1.0, 2.0, 6.0]) == Spread(3, 3.0, pytest.approx(7**0.5), 2.0, 1.0, 6.0)
