"""Sweeps in which nothing is left to do, or everything."""

import os
import signal
import sys
from pathlib import Path

import pytest

from manyheads.launchers.sweep import resume as module
from manyheads.launchers.sweep.resume import resume
from manyheads.runner.run.ledger import Entry, Ledger
from tests.conftest import FAST, ROOT, RUN, execute
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


KILLED = """
import os, runpy, signal
from manyheads.launchers.sweep.batch import Batch
Batch.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
runpy.run_path({run!r}, run_name="__main__")
"""


@pytest.mark.processes
@pytest.mark.parametrize("step", ["_compose", tail("_frozen")])
def test_a_sweep_that_is_killed_while_it_is_planned_loses_nothing(tmp_path, step):
    path = tmp_path / "sweep"
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(step=step, run=str(RUN)))
    typed = ("-m", *FAST, "seed=1,2", f"hydra.sweep.dir={path}")
    done = execute(sys.executable, str(script), *typed, cwd=ROOT)
    assert done.code == -signal.SIGKILL, done.err
    assert Ledger(path).exists()
    done = execute(sys.executable, "-m", "manyheads.runner", "resume", str(path), cwd=ROOT)
    assert done.code == 0, done.err
    assert [(entry.job, entry.state) for entry in Ledger(path).entries()] == [(0, "completed"), (1, "completed")]
