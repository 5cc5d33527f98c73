from pathlib import Path

import pytest

from tests.report.sweep import Sweep
from tests.sweeps import set_column, set_config, set_result


def test_another_backends_losses_are_a_finding(sweep: Sweep):
    sweep.job("parallel=single")
    sweep.job("parallel=ddp", ranks=2)
    set_losses(sweep.job("parallel=horovod", ranks=2), [9.0])
    comparison = sweep.compared()
    finding = [note for note in comparison.notes if note.startswith("Finding")]
    assert len(finding) == 1
    assert "job 2 (horovod) differs from job 0 from step 2" in finding[0]
    assert [row.losses for row in comparison.rows[:2]] == ["", "same as job 0 in all 15 logged steps"]


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


@pytest.mark.parametrize("is_finding", [False, True])
def test_on_gpus_only_deterministic_algorithms_make_an_early_departure_a_finding(sweep: Sweep, is_finding: bool):
    for backend in ("single", "ddp"):
        folder = sweep.job(f"parallel={backend}")
        set_config(folder, {"trainer.device": "cuda", "trainer.deterministic": is_finding})
    set_losses(folder, [9.0])
    comparison = sweep.compared()
    assert any(note.startswith("Finding") for note in comparison.notes) == is_finding
    note = "job 1 differs early from job 0, at step 2 ("
    assert any("cannot tell a fault from rounding" in each and note in each for each in comparison.notes) != is_finding


def test_a_later_departure_is_told_but_no_finding(sweep: Sweep):
    sweep.job("parallel=single")
    folder: Path = sweep.job("parallel=ddp")
    set_losses(folder, read_losses(folder) + [9.0])
    comparison = sweep.compared()
    assert comparison.rows[1].losses.startswith("departs from job 0 at step 12")
    assert any("not faults in themselves: job 1 departs" in note for note in comparison.notes)


def read_losses(folder: Path) -> list[str]:
    """The first five."""
    return [line.split(",")[3] for line in (folder / "steps.csv").read_text().splitlines()[1:6]]


@pytest.mark.parametrize("rows", [0, 5])
def test_runs_that_end_with_the_same_weights_give_no_finding(sweep: Sweep, rows: int):
    sweep.job("parallel=single")
    folder = sweep.job("parallel=ddp", ranks=2)
    set_column(folder / "steps.csv", "loss", read_losses(folder)[:rows] + [9.0])
    comparison = sweep.compared()
    assert comparison.rows[1].losses == "ended with the same weights as job 0"
    assert not any("job 1 d" in note for note in comparison.notes)


def set_losses(folder: Path, losses: list) -> None:
    """Other losses, and so other weights."""
    set_column(folder / "steps.csv", "loss", losses)
    set_result(folder, {"weights_sha256": "f" * 64})
