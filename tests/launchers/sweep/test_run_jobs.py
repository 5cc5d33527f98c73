"""Sweeps in which nothing is left to do, or everything."""

import os
import signal
import sys
from pathlib import Path

import pytest

from manyheads.launchers.sweep import run_jobs as module
from manyheads.launchers.sweep.run_jobs import resume
from manyheads.runner.run.ledger import Entry, Ledger
from tests.conftest import FAST, ROOT, RUN, Done, execute
from tests.tail import tail


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two completed jobs, and their comparison."""
    ledger = Ledger(tmp_path / "sweep")
    ledger.create({}, *(Entry(job, str(job), [f"seed={job}"], state="completed") for job in range(2)))
    for suffix in ("csv", "md", "html"):
        (ledger.sweep / f"comparison.{suffix}").touch()
    return ledger.sweep


@pytest.fixture
def concluded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sweeps that were compared again."""
    found: list[Path] = []
    monkeypatch.setattr(module, "conclude", lambda ledger, **_: found.append(ledger.sweep))
    return found


def test_it_only_says_so(sweep: Path, concluded: list[Path], capsys: pytest.CaptureFixture[str]):
    resume(sweep)
    said = capsys.readouterr()
    assert f"{sweep} is already complete." in said.out
    assert "2 jobs: 2 completed" in said.err
    assert concluded == []


def test_a_comparison_that_is_missing_is_made(sweep: Path, concluded: list[Path]):
    (sweep / "comparison.md").unlink()
    resume(sweep)
    assert concluded == [sweep]


def test_a_comparison_of_before_the_last_job_is_made_again(sweep: Path, concluded: list[Path]):
    """The sweep was killed between its last job and the comparison."""
    written = (sweep / "comparison.csv").stat().st_mtime_ns
    os.utime(Ledger(sweep).path, ns=(written + 1, written + 1))
    resume(sweep)
    assert concluded == [sweep]


STOPPED = """
import os, runpy
from manyheads.launchers.sweep.batch import JobBatch
from manyheads.runner.run.ledger import Ledger
{step} = lambda *_: os.kill(os.getpid(), {signum})
runpy.run_path({run!r}, run_name="__main__")
"""
BOTH = [(0, "completed"), (1, "completed")]


def _stopped(folder: Path, step: str, signum: int, *typed: str) -> Done:
    """A sweep of two jobs that receives a signal at a step of its planning."""
    script = folder / "stopped.py"
    script.write_text(STOPPED.format(step=step, signum=int(signum), run=str(RUN)))
    sweep = f"hydra.sweep.dir={folder / 'sweep'}"
    return execute(sys.executable, str(script), "-m", *FAST, "seed=1,2", sweep, *typed, cwd=ROOT)


def _resumed(sweep: Path) -> tuple[Done, list[tuple[int, str]]]:
    done = execute(sys.executable, "-m", "manyheads.runner", "resume", str(sweep), cwd=ROOT)
    return done, [(entry.job, entry.state) for entry in Ledger(sweep).entries()]


@pytest.mark.processes
@pytest.mark.parametrize("step", ["Ledger.add", tail("JobBatch._compose"), tail("JobBatch._run")])
def test_a_sweep_that_is_killed_while_it_is_planned_loses_nothing(tmp_path, step):
    done = _stopped(tmp_path, step, signal.SIGKILL)
    assert done.code == -signal.SIGKILL, done.err
    assert Ledger(tmp_path / "sweep").exists()
    done, jobs = _resumed(tmp_path / "sweep")
    assert (done.code, jobs) == (0, BOTH), done.err
    assert ("Planning its jobs again" in done.out) is (step != "JobBatch._run")


@pytest.mark.processes
def test_a_sweep_that_is_asked_to_stop_while_it_is_planned_says_how_to_resume(tmp_path):
    done = _stopped(tmp_path, "JobBatch._note", signal.SIGTERM)
    assert done.code == 128 + signal.SIGTERM, done.err
    assert "no job was started" in done.err
    assert f"resume {tmp_path / 'sweep'}" in done.err
    ledger = Ledger(tmp_path / "sweep")
    assert ledger.restarting(ledger.sealed_part()) is not None


@pytest.mark.processes
def test_a_sweep_in_batches_that_is_killed_at_its_first_job_loses_no_batch(tmp_path):
    done = _stopped(tmp_path, "JobBatch._start", signal.SIGKILL, "hydra.sweeper.max_batch_size=1")
    assert done.code == -signal.SIGKILL, done.err
    assert "hydra.launcher.jobs sets how many run at the same time" in done.err
    done, jobs = _resumed(tmp_path / "sweep")
    assert (done.code, jobs) == (0, BOTH), done.err
