import fcntl
import shutil
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.run_set import gather
from manyheads.runner.run.run_folder import RunFolder
from tests.report.sweep import Sweep


def test_a_ledger_names_the_jobs(sweep: Sweep):
    sweep.job("parallel=single")
    sweep.job("parallel=ddp", state="skipped", reason="no GPU")
    run_set = gather([str(sweep.folder)])
    assert [(job.number, job.state, job.reason) for job in run_set.jobs] == [
        ("0", "completed", None),
        ("1", "skipped", "no GPU"),
    ]
    assert run_set.folder == sweep.folder
    assert not run_set.active


def test_other_launchers_sweeps_are_numbered_folders_in_the_order_of_numbers(tmp_path: Path, real_run: RunFolder):
    sweep = Sweep(tmp_path / "sweep", real_run, ledger=False)
    for _ in range(11):
        sweep.job("parallel=single")
    assert [job.number for job in gather([str(sweep.folder)]).jobs] == [str(number) for number in range(11)]


def test_the_runs_of_a_tuning_are_compared_as_those_of_a_sweep(tmp_path: Path, real_run: RunFolder):
    for name in ("0010-screen", "0002-screen"):
        shutil.copytree(real_run.path, tmp_path / "tuning" / "runs" / name)
    found = gather([str(tmp_path / "tuning")])
    assert [job.number for job in found.jobs] == ["0002-screen", "0010-screen"]
    assert found.folder == tmp_path / "tuning"


def test_loose_runs_and_sweeps_can_be_mixed(sweep: Sweep, real_run: RunFolder):
    sweep.job("parallel=ddp")
    run_set = gather([str(real_run.path), str(sweep.folder)])
    assert [job.number for job in run_set.jobs] == [str(real_run.path), f"{sweep.folder}/0"]
    assert run_set.folder is None


def test_a_folder_named_twice_counts_once(real_run: RunFolder):
    assert len(gather([str(real_run.path)] * 2).jobs) == 1


def test_a_running_job_of_a_dead_sweep_was_interrupted(sweep: Sweep):
    sweep.job("parallel=single", state="running")
    assert sweep.ledger
    assert gather([str(sweep.folder)]).jobs[0].state == "interrupted"
    with sweep.ledger.locked():
        assert gather([str(sweep.folder)]).jobs[0].state == "running"


def test_without_ledger_a_run_that_is_locked_is_running(tmp_path: Path, real_run: RunFolder):
    sweep = Sweep(tmp_path / "sweep", real_run, ledger=False)
    folder = sweep.job("parallel=single")
    (folder / "result.json").unlink()
    assert gather([str(sweep.folder)]).jobs[0].state == "interrupted"
    with open(folder / "run.yaml") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert gather([str(sweep.folder)]).jobs[0].state == "running"


def test_a_refused_job_has_failed(tmp_path: Path, real_run: RunFolder):
    sweep = Sweep(tmp_path / "sweep", real_run, ledger=False)
    (sweep.job("parallel=single") / "run.yaml").unlink()
    (sweep.folder / "0" / "result.json").unlink()
    job = gather([str(sweep.folder)]).jobs[0]
    assert job.state == "failed"
    assert "refused" in str(job.reason)


def test_the_reason_is_the_last_line_of_the_rank_that_failed_first(sweep: Sweep):
    error = {"rank": 1, "exit_code": 1, "type": "RuntimeError", "message": "first line\nlast line", "traceback": ""}
    sweep.job("parallel=single", state="failed", result={"error": error})
    assert [job.reason for job in gather([str(sweep.folder)]).jobs] == ["rank 1: RuntimeError: last line"]


@pytest.mark.parametrize(("path", "message"), [("nowhere", "is not a folder"), (".", "neither a run")])
def test_what_is_no_run_is_refused(tmp_path: Path, path: str, message: str):
    with pytest.raises(ConfigurationError, match=message):
        gather([str(tmp_path / path)])


def test_no_path_is_refused():
    with pytest.raises(ConfigurationError, match="Name the folder"):
        gather([])


@pytest.mark.parametrize(("state", "is_read"), [("failed", False), ("completed", True)])
def test_a_refused_job_has_nothing_of_the_run_whose_folder_it_was_to_have(sweep: Sweep, state: str, is_read: bool):
    sweep.job("parallel=single", state=state, signature=None, seconds=1.0)
    (job,) = gather([str(sweep.folder)]).jobs
    assert bool(job.run.config) == bool(job.run.epochs) == is_read
    assert job.run.folder == sweep.folder / "0"


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({}, None),
        ({"jobs": 1}, None),
        ({"jobs": 3}, "3 jobs ran at the same time (hydra.launcher.jobs=3), so their timings are unreliable."),
        ({"jobs": "auto"}, "Jobs may have run at the same time (hydra.launcher.jobs=auto), "),
    ],
)
def test_jobs_at_once_are_told(tmp_path: Path, real_run: RunFolder, options: dict, note: str | None):
    sweep = Sweep(tmp_path / "sweep", real_run, options=options)
    sweep.job("parallel=single")
    assert gather([str(sweep.folder)]).notes == ()
    sweep.job("parallel=ddp")
    told = [text for text in sweep.compared().notes if "at the same time" in text]
    assert len(told) == (note is not None)
    assert all(text.startswith(str(note)) for text in told)


def test_what_runs_have_in_common_is_held_once(sweep: Sweep):
    for seed in range(2):
        sweep.job("parallel=single", f"seed={seed}")
    first, second = (job.run for job in gather([str(sweep.folder)]).jobs)
    assert first.provenance["versions"] is second.provenance["versions"]
    assert first.result["scores"] is second.result["scores"]
    assert first.steps["step"] is second.steps["step"]
    assert {"packages", "environment"}.isdisjoint(first.provenance)
    assert {"train_acc1", "val_seconds"}.isdisjoint(first.epochs)
