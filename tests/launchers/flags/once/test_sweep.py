"""``train -m --once``: jobs that equal runs answer are not run, and the comparison has their runs."""

import json
from pathlib import Path

import pytest

import manyheads
from manyheads.runner.run.ledger import EARLIER, Ledger
from tests.launchers.flags.once.desk import WORDS, Desk
from tests.tail import tail

pytestmark = [pytest.mark.processes, pytest.mark.ci]
RATES = "optimizer.lr=0.1,0.2"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_jobs_that_were_done_are_not_run(desk):
    first = desk.answer("optimizer.lr=0.1", "hydra.run.dir=outputs/first")
    answer, jobs = desk.sweep(RATES, "hydra.sweep.dir=outputs/sweep")
    assert [job["folder"] for job in jobs] == [first, str(desk.folder / "outputs" / "sweep" / "1")]
    assert [EARLIER in job["remarks"] for job in jobs] == [True, False]
    assert all(job["measures"]["val_acc1"] is not None for job in jobs)
    assert "Not run again, since equal runs had completed: job 0." in answer["notes"]
    assert len(desk.runs()) == 2
    assert not (desk.folder / "outputs" / "sweep" / "0").exists()

    before, again = desk.runs(), [job["folder"] for job in jobs]
    _, jobs = desk.sweep(RATES, "hydra.sweep.dir=outputs/again", "hydra.launcher.jobs=2")
    assert [job["folder"] for job in jobs] == again
    assert desk.runs() == before
    assert [entry.reason for entry in Ledger(desk.folder / "outputs" / "again").entries()] == [EARLIER] * 2


def test_a_job_that_was_interrupted_is_resumed_where_it_was(desk):
    desk.fault.write_text("kill 5")
    assert desk.ask("optimizer.lr=0.1").code == -9
    [folder] = desk.runs()
    _, jobs = desk.sweep("optimizer.lr=0.1")
    assert [(job["state"], job["folder"]) for job in jobs] == [("completed", str(folder))]
    assert desk.runs() == [folder]


def test_equal_jobs_of_a_sweep_are_one_run(desk):
    _, jobs = desk.sweep("tags=[a],[b]", "hydra.launcher.jobs=2")
    assert len({job["folder"] for job in jobs}) == 1
    assert len(desk.runs()) == 1


def test_from_python(desk, monkeypatch):
    monkeypatch.chdir(desk.folder)
    first = desk.answer("optimizer.lr=0.1")
    rows = manyheads.sweep([*WORDS, RATES], once=True)
    assert [row.status for row in rows] == ["completed"] * 2
    assert str(rows[0].folder) == first
    assert rows[0].metrics == json.loads((Path(first) / "result.json").read_text())["metrics"]


@pytest.mark.parametrize("sweeper", ["search", tail("optuna")])
def test_a_search_takes_what_was_tried(desk, sweeper):
    words = (f"hydra/sweeper={sweeper}", "hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.seed=1")
    words += () if sweeper == "search" else ("hydra.sweeper.direction=maximize", "hydra.sweeper.n_jobs=1")
    _, jobs = desk.sweep(*words, "optimizer.lr=interval(0.01,0.1)", "hydra.sweep.dir=outputs/a")
    before = desk.runs()
    assert len(before) == 2
    _, again = desk.sweep(*words, "optimizer.lr=interval(0.01,0.1)", "hydra.sweep.dir=outputs/b")
    assert [job["folder"] for job in again] == [job["folder"] for job in jobs]
    assert desk.runs() == before


def test_other_launchers_of_jobs_are_refused(desk):
    with pytest.raises(AssertionError, match="--once needs hydra/launcher=manyheads"):
        desk.sweep(RATES, "hydra/launcher=joblib")
    assert desk.runs() == []
