"""The search on recorded grids, a short version of ``python -m tests.answers.tune.replay``."""

import math

import pytest

from manyheads.runner.answers.tune.race import BASE
from manyheads.runner.answers.tune.trial import SAME
from tests.answers.tune.recorded import NAMES, STALL, BudgetTooSmall, Grid
from tests.answers.tune.replay import planted, replayed, searches
from tests.tail import tailed

pytestmark = pytest.mark.ci

COUNT = 25


@pytest.fixture(scope="module", params=NAMES)
def grid(request):
    return Grid.read(request.param)


def test_grids_are_whole(grid):
    assert {*grid.levels} <= {*grid.seconds}
    assert len(grid.seconds) >= 57
    reached, pending = {BASE}, [BASE]
    while pending:
        found = [other for step in grid.axes for other in grid.alternatives(pending[0], step) if other not in reached]
        reached |= {*found}
        pending = [*pending[1:], *found]
    assert reached == {*grid.seconds}
    assert all(1 < len(each) <= len(grid.drifts) for each in grid.residuals.values())
    assert all(math.log(STALL) / 2 < lost < 4 and 1 < longer < 30 for lost, longer in grid.stalls)
    assert grid.stalled < 0.03


HOW = {"as recorded": {}, "noisier": {"noise": 2.0}, "busy in the middle": {"load": 3.0}}


@pytest.mark.parametrize("how", tailed(HOW, always=["as recorded"]))
def test_what_is_stated_is_true(grid, how):
    found, _ = searches(grid, 0.5, count=COUNT, **HOW[how])
    assert sum(each.is_true for each in found) >= 0.95 * len(found)
    assert {each.numerics for each in found} >= {SAME}


def test_the_same_seed_gives_the_same_answer(grid):
    assert replayed(grid, 0.25, seed=1) == replayed(grid, 0.25, seed=1)


def test_a_budget_for_a_few_runs_is_refused(grid):
    with pytest.raises(BudgetTooSmall):
        replayed(grid, 0.001, seed=0)


def test_a_cheat_is_never_chosen(grid):
    assert planted(grid, 0.5, 0.25, count=COUNT, numerics=None) == 0


def test_a_single_change_that_gains_much_is_found_whatever_others_with_that_setting_do(grid):
    assert planted(grid, 0.5, 0.5, count=10, near=True) >= 0.8
