from pathlib import Path

import pytest

from manyheads.runner.report.agreement import departure
from tests.report.sweep import Sweep, set_column, set_config, set_result

LOSSES = [2.0, 1.8, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7]


def steps(losses: list[float], every: int = 2) -> dict[str, list[float]]:
    return {"step": [every * (n + 1) for n in range(len(losses))], "loss": losses}


def changed(at: int, factor: float) -> list[float]:
    return [loss * factor if n >= at else loss for n, loss in enumerate(LOSSES)]


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
    found, common = departure(steps(changed(at, factor), every), steps(LOSSES, every), precision=precision)
    assert found is not None
    assert (found.step, found.early) == (every * (at + 1), early)
    assert common == len(LOSSES)


@pytest.mark.parametrize(
    ("precision", "factor"), [("fp64", 1 + 1e-12), ("fp32", 1 + 1e-4), ("tf32", 1.005), ("bf16", 1.03), ("amp", 0.97)]
)
def test_within_tolerance_is_the_same(precision: str, factor: float):
    assert departure(steps(changed(0, factor)), steps(LOSSES), precision=precision)[0] is None


def test_nan_in_both_is_the_same():
    losses = [2.0, float("nan")]
    assert departure(steps(losses), steps(losses), precision="fp32") == (None, 2)


def test_only_common_steps_are_compared():
    assert departure(steps(LOSSES, 2), steps(LOSSES, 3), precision="fp32")[1] == 2
    assert departure(steps(LOSSES[:1], 7), steps(LOSSES, 2), precision="fp32") == (None, 0)


def test_another_backends_losses_are_a_finding(sweep: Sweep):
    sweep.job("parallel=single")
    sweep.job("parallel=ddp", ranks=2)
    set_losses(sweep.job("parallel=horovod", ranks=2), [9.0])
    comparison = sweep.compared()
    finding = [note for note in comparison.notes if note.startswith("Finding")]
    assert len(finding) == 1
    assert "job 2 (horovod) differs from job 0 from step 2" in finding[0]
    assert [row.losses for row in comparison.rows[:2]] == ["", "as job 0 in all 15 logged steps"]


def test_a_model_that_depends_on_the_cut_of_the_batch_is_no_finding(sweep: Sweep):
    folders = [sweep.job("parallel=single"), sweep.job("parallel=ddp", ranks=2)]
    for folder in folders:
        set_config(folder, {"model": "resnet50"})
    set_losses(folders[1], [9.0])
    assert any("Not a fault if the model has BatchNorm" in note for note in sweep.compared().notes)


@pytest.mark.parametrize(
    "key", ["optimizer.lr", "precision", "parallel.compression", "trainer.epochs", "trainer.log_every", "seed"]
)
def test_runs_that_should_differ_are_not_held_against_each_other(sweep: Sweep, key: str):
    sweep.job("parallel=single")
    folder = sweep.job("parallel=ddp")
    set_config(folder, {key: {"precision": "bf16", "parallel.compression": "fp16"}.get(key, 7)})
    set_losses(folder, [9.0])
    comparison = sweep.compared()
    assert not any("differs from job" in note for note in comparison.notes)
    assert all(row.losses == "" for row in comparison.rows)


def test_a_later_departure_is_told_but_no_finding(sweep: Sweep):
    sweep.job("parallel=single")
    folder: Path = sweep.job("parallel=ddp")
    set_losses(folder, read_losses(folder) + [9.0])
    comparison = sweep.compared()
    assert comparison.rows[1].losses.startswith("departs from job 0 at step 12")
    assert any("no fault by itself: job 1 departs" in note for note in comparison.notes)


def read_losses(folder: Path) -> list[str]:
    """The first five."""
    return [line.split(",")[3] for line in (folder / "steps.csv").read_text().splitlines()[1:6]]


@pytest.mark.parametrize("rows", [0, 5])
def test_runs_that_end_with_the_same_weights_give_no_finding(sweep: Sweep, rows: int):
    sweep.job("parallel=single")
    folder = sweep.job("parallel=ddp", ranks=2)
    set_column(folder / "steps.csv", "loss", read_losses(folder)[:rows] + [9.0])
    comparison = sweep.compared()
    assert comparison.rows[1].losses == "ended with job 0's weights"
    assert not any("job 1 d" in note for note in comparison.notes)


def set_losses(folder: Path, losses: list) -> None:
    """Other losses, and so other weights."""
    set_column(folder / "steps.csv", "loss", losses)
    set_result(folder, {"weights_sha256": "f" * 64})
