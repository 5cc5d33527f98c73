"""The spine of a run is short, and names no optional feature."""

import pytest

from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import Update
from tests.house.loop import SPINE, arguments, hooks, long_functions, share, to_the_first_update


@pytest.mark.parametrize("name", SPINE)
def test_its_lines_name_no_optional_feature(name):
    assert share(SPINE[name]) <= 0.03


@pytest.mark.parametrize("kind", [Update, Trainer])
def test_what_updates_and_trains_takes_few_arguments(kind):
    assert len(arguments(kind)) <= 7


def test_a_strategy_has_few_hooks():
    assert len(hooks()) <= 34


def test_a_config_passes_few_files():
    assert to_the_first_update()[0] <= 16


def test_a_config_passes_few_lines():
    assert to_the_first_update()[1] <= 2_000


def test_functions_of_the_loop_fit_on_a_screen():
    assert [*long_functions()] == []
