"""Real runs whose budget is spent: refused before anything is made, or stopped, and resumed to the same bits."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.launchers.companions.budget.spending import SpendingLedger
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, RUN, Done, execute
from tests.launchers.companions.budget.conftest import until

pytestmark = pytest.mark.processes
LONG = (*FAST, "trainer.max_steps=100000", "launcher=spawn", "parallel=ddp", "launcher.nproc_per_node=1")


def manyheads(*words: str, cwd: Path) -> Done:
    return execute(sys.executable, "-m", "manyheads", *words, cwd=cwd, timeout=250)


def started(folder: Path, *overrides: str) -> subprocess.Popen:
    words = [sys.executable, str(RUN), *overrides, f"hydra.run.dir={folder}"]
    return subprocess.Popen(words, cwd=folder.parent, stdout=subprocess.DEVNULL)


def total(path: Path) -> float:
    return sum(line.device_seconds for line in SpendingLedger(path).sessions())


def status(folder: Path) -> str:
    return (RunFolder(folder).read_result() or {})["status"]


def test_nothing_is_made_for_a_run_that_is_refused(run_here, tmp_path):
    """The budget of the working directory's outputs/, without a name in the environment."""
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "budget.yaml").write_text("runs: 0")
    done = run_here(*FAST)
    assert done.code == ExitCode.SPENT == 6
    assert "budget.yaml: runs: 0 of 0 are spent. Nothing was started." in done.err
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["budget.yaml"]
    (tmp_path / "outputs" / "budget.yaml").write_text("runs: many")
    done = run_here(*FAST)
    assert done.code == ExitCode.REFUSED
    assert "runs: many is not allowed. Allowed: an integer of at least 0" in done.err
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["budget.yaml"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "line",
    [
        "train -m {} seed=1,2",
        "train -m {} hydra/sweeper=search optimizer.lr=interval(0.01,0.1) hydra.sweeper.n_trials=2",
        "train --once {}",
        "parity {} parallel=ddp",
        "judge {} --change optimizer.lr=0.1 --on val_loss",
        "judge --command 'echo loss 1' --against 'echo loss 2' --on loss",
        "tune {}",
        "explain {}",
        "evaluate {run}",
        "reproduce {run}",
    ],
)
def test_nothing_is_made_by_other_commands(line, budget, tmp_path, finished_run):
    budget("runs: 0")
    words = shlex.split(line.replace("{}", shlex.join(FAST)).replace("{run}", str(finished_run.path)))
    if "--command" in words:
        subprocess.run(
            "git init -q; git -c user.name=a -c user.email=a commit -q --allow-empty -m a", shell=True, cwd=tmp_path
        )
    done = manyheads(*words, "--json", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["error"]["code"]) == (6, "BudgetSpent"), done.err
    outputs = tmp_path / "outputs"
    assert [path for path in outputs.rglob("*") if not path.is_dir() and path.name != ".once.lock"] == []


@pytest.mark.ci
def test_a_stopped_run_resumes_to_the_same_bits_once_there_is_more(budget, run_command, tmp_path):
    overrides = (*FAST, "trainer.max_steps=400", "launcher=spawn", "parallel=ddp", "launcher.nproc_per_node=2")
    path, folder = budget("device_seconds: 1000"), tmp_path / "outputs" / "stopped"
    assert run_command(*overrides, "hydra.run.dir=outputs/whole").code == 0
    run = started(folder, *overrides)
    try:
        until((folder / "steps.csv").exists, seconds=120)
        budget(f"device_seconds: {total(path)}")
        assert run.wait(60) == 6
    finally:
        run.kill()
        run.wait()
    assert status(folder) == "interrupted"
    assert manyheads("resume", "outputs/stopped", cwd=tmp_path).code == 6
    budget("device_seconds: 1000\nruns: 2")  # a run that counts already is no further one
    assert manyheads("resume", "outputs/stopped", cwd=tmp_path).code == 0
    whole, stopped = (RunFolder(tmp_path / "outputs" / name).read_result() for name in ("whole", "stopped"))
    assert whole["weights_sha256"] == stopped["weights_sha256"]


@pytest.mark.ci
@pytest.mark.parametrize("launcher", ["spawn", "inline"])
def test_two_runs_stop_at_their_common_limit(launcher, budget, tmp_path):
    path = budget("device_seconds: 1000")
    overrides = LONG if launcher == "spawn" else (*FAST, "trainer.max_steps=100000", "launcher=inline")
    runs = [started(tmp_path / name, *overrides) for name in ("one", "two")]
    try:
        until(lambda: all((tmp_path / name / "steps.csv").exists() for name in ("one", "two")), seconds=120)
        limit = total(path) + 4
        budget(f"device_seconds: {limit}")
        assert [run.wait(60) for run in runs] == [6, 6]
    finally:
        for run in runs:
            run.kill()
            run.wait()
    assert limit <= total(path) < limit + 2 * 1.5  # updates of milliseconds, a checkpoint, and the end of two processes
    assert [status(tmp_path / name) for name in ("one", "two")] == ["interrupted"] * 2


@pytest.mark.ci
def test_a_run_that_is_killed_has_spent_what_it_used(budget, tmp_path):
    path = budget("device_seconds: 1000")
    run = started(tmp_path / "run", *LONG)
    try:
        until((tmp_path / "run" / "steps.csv").exists, seconds=120)
        before = total(path)
        until(lambda: total(path) > before + 2)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    used = total(path)
    assert used > before + 2
    budget(f"device_seconds: {used}")
    assert manyheads("train", *FAST, cwd=tmp_path).code == 6


@pytest.mark.ci
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_stops_and_says_what_was_not_run(jobs, budget, tmp_path):
    path = budget("runs: 2")
    words = ("-m", *FAST, "seed=1,2,3,4", f"hydra.launcher.jobs={jobs}", "hydra.sweep.dir=outputs/sweep")
    done = manyheads("train", *words, cwd=tmp_path)
    assert done.code == 6, done.err
    assert "4 jobs: 2 pending, 2 completed" in done.err
    assert f"{path.relative_to(tmp_path)}: runs: 2 of 2 are spent. Nothing was started." in done.err
    assert "resume it with: " in done.err
    budget("runs: 4")
    assert manyheads("resume", "outputs/sweep", cwd=tmp_path).code == 0
    assert {entry.state for entry in Ledger(tmp_path / "outputs" / "sweep").entries()} == {"completed"}


@pytest.mark.ci
def test_the_job_of_a_sweep_that_is_stopped_is_interrupted(budget, tmp_path):
    budget("device_seconds: 12")
    words = ("-m", *LONG, "seed=1,2,3", "hydra.launcher.jobs=2", "hydra.sweep.dir=outputs/sweep", "--json")
    done = manyheads("train", *words, cwd=tmp_path)
    assert (done.code, json.loads(done.out)["error"]["code"]) == (6, "BudgetSpent"), done.err
    entries = Ledger(tmp_path / "outputs" / "sweep").entries()
    assert [entry.state for entry in entries] == ["interrupted", "interrupted", "pending"]


@pytest.mark.ci
def test_a_judgement_ends_undecided(budget, tmp_path):
    budget("runs: 9")
    words = ("judge", *FAST, "--change", "optimizer.lr=0.03", "--on", "val_loss", "--json")
    done = manyheads(*words, cwd=tmp_path)
    result = json.loads(done.out)["result"]
    assert done.code == ExitCode.UNDECIDED, done.err
    assert result["claims"]["verdict"] == "undecided"
    assert "runs: 9 of 9 are spent" in result["stopped"]
    assert result["claims"]["lost"] == [0, 0]
    assert Path(result["path"]).exists()
    assert manyheads(*words, cwd=tmp_path).code == ExitCode.SPENT


@pytest.mark.ci
def test_ranks_of_another_launcher_count(budget, tmp_path):
    path = budget("device_seconds: 1000")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    done = execute(*torchrun, str(RUN), *FAST, f"hydra.run.dir={tmp_path / 'run'}", cwd=tmp_path, timeout=200)
    assert done.code == 0, done.err
    (line,) = SpendingLedger(path).sessions()
    assert (line.devices, line.is_running) == (2, False)
