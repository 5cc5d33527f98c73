import pytest

from manyheads.runner.config.lookup import read_option
from manyheads.runner.option.declared import declared
from manyheads.runner.records import rounding

LOSSES = [2.0, 1.8, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7]


def steps(losses: list[float], every: int = 2) -> dict[str, list[float]]:
    return {"step": [every * (n + 1) for n in range(len(losses))], "loss": losses}


def changed(at: int, factor: float) -> list[float]:
    return [loss * factor if n >= at else loss for n, loss in enumerate(LOSSES)]


def departure(now: dict[str, list[float]], recorded: dict[str, list[float]], *, precision: str):
    """The first departure of losses, whether it is early, and how many steps are in common."""
    tolerance = declared("precision", read_option("precision", precision)).tolerance
    pairs = rounding.paired("loss", recorded, now)
    found = rounding.departure(pairs, tolerance=tolerance)
    return found, found and rounding.is_early(found, tolerance=tolerance), len(pairs)


@pytest.mark.parametrize(
    ("precision", "at", "factor", "every", "early"),
    [
        ("fp64", 0, 1 + 1e-8, 2, True),
        ("fp32", 0, 1 + 1e-2, 2, True),
        ("fp32", 4, 1 + 1e-2, 2, True),
        ("fp32", 5, 1 + 1e-2, 2, False),  # not among the first five
        ("fp32", 4, 3.0, 10, False),  # step 50: rounding can be amplified to anything
        ("fp32", 1, 1 + 1e-2, 10, True),
        ("tf32", 0, 1 + 2e-2, 2, True),
        ("bf16", 0, 1 + 1e-1, 2, True),
        ("fp32", 2, float("nan"), 2, True),
    ],
)
def test_only_what_cannot_be_rounding_is_early(precision: str, at: int, factor: float, every: int, early: bool):
    found, is_early, common = departure(steps(changed(at, factor), every), steps(LOSSES, every), precision=precision)
    assert found is not None
    assert (found.step, is_early) == (every * (at + 1), early)
    assert common == len(LOSSES)


@pytest.mark.parametrize(
    ("precision", "factor"), [("fp64", 1 + 1e-12), ("fp32", 1 + 1e-4), ("tf32", 1.005), ("bf16", 1.03), ("amp", 0.97)]
)
def test_within_tolerance_is_the_same(precision: str, factor: float):
    assert departure(steps(changed(0, factor)), steps(LOSSES), precision=precision)[0] is None


def test_nan_in_both_is_the_same():
    losses = [2.0, float("nan")]
    assert departure(steps(losses), steps(losses), precision="fp32") == (None, None, 2)


def test_only_common_steps_are_compared():
    assert departure(steps(LOSSES, 2), steps(LOSSES, 3), precision="fp32")[2] == 2
    assert departure(steps(LOSSES[:1], 7), steps(LOSSES, 2), precision="fp32") == (None, None, 0)


@pytest.mark.parametrize(
    ("step", "since", "early"), [(1, 0, True), (2, 0, False), (31, 30, True), (31, 31, True), (32, 30, False)]
)
def test_where_runs_differ_anyway_only_the_first_update_tells(step: int, since: int, early: bool):
    pair = rounding.ComparedValue("loss", step, 1.0, 1.1, 0.1)
    assert rounding.is_early(pair, tolerance=1e-3, since=since, exact=False) == early
