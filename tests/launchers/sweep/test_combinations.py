"""Which jobs a sweep has: all combinations, or with ``zip`` those of values that go together."""

from unittest.mock import Mock

import pytest

from hydra_plugins.manyheads.combinations import Combinations
from manyheads.runner.errors import ConfigurationError

TYPED = ("lr=1,2", "wide=true", "batch=8,16", "seed=range(0,2)")
PAIRED = [("lr=1", "batch=8"), ("lr=2", "batch=16")]


def jobs(zip=(), *, typed=TYPED, params=None):
    sweeper = Combinations(None, params, list(zip))
    sweeper.hydra_context = Mock(config_loader=None)
    return [tuple(job) for job in sweeper._jobs(list(typed))]


@pytest.mark.parametrize("zip", [[], [[]]])
def test_all_combinations_the_last_key_changing_fastest(zip):
    expected = [
        (f"lr={lr}", "wide=True", f"batch={batch}", f"seed={seed}")
        for lr in (1, 2)
        for batch in (8, 16)
        for seed in (0, 1)
    ]
    assert jobs(zip) == expected


@pytest.mark.parametrize("zip", [["lr", "batch"], ["batch", "lr"], [["lr", "batch"]]])
def test_values_that_go_together(zip):
    assert sorted(jobs(zip)) == sorted(
        (lr, "wide=True", batch, f"seed={seed}") for lr, batch in PAIRED for seed in (0, 1)
    )


def test_several_groups():
    assert jobs([["lr", "batch"], ["seed", "fold"]], typed=(*TYPED, "fold=3,4")) == [
        (lr, "wide=True", batch, f"seed={seed}", f"fold={fold}")
        for lr, batch in PAIRED
        for seed, fold in ((0, 3), (1, 4))
    ]


def test_values_of_the_sweeper_itself_are_combined_too():
    assert jobs(["a", "b"], typed=("b=3,4",), params={"a": "1,2"}) == [("a=1", "b=3"), ("a=2", "b=4")]


@pytest.mark.parametrize(
    ("zip", "message"),
    [
        (["lr", "bach"], "hydra.sweeper.zip=bach is not among the values that are typed. Allowed: lr, batch, seed."),
        (["lr", "lr"], "hydra.sweeper.zip=lr is named twice"),
        ([["lr", "batch"], ["seed", "lr"]], "hydra.sweeper.zip=lr is named twice"),
        (["lr", "wide"], "values that go together must be equally many: lr has 2, wide has 1"),
    ],
)
def test_what_cannot_go_together_is_refused(zip, message):
    with pytest.raises(ConfigurationError, match=message):
        jobs(zip)


def test_an_interval_has_no_list_of_values():
    with pytest.raises(ConfigurationError, match=r"lr=interval\(0,1\): an interval has no list of values"):
        jobs(typed=("lr=interval(0,1)",))
