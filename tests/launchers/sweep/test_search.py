"""Searches: trials from the ledger, ended early by the parent, resumed."""

import json
import shutil
import signal
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from manyheads.launchers.sweep.arguments import SEARCH as ARGUMENTS
from manyheads.launchers.sweep.arguments import arguments_of
from manyheads.launchers.sweep.pruning import Pruning
from manyheads.launchers.sweep.trials import LOSS, trials
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, RUN, execute
from tests.in_process import SMALL
from tests.tail import tail

pytestmark = pytest.mark.filterwarnings("ignore:.* is experimental")


@pytest.fixture(scope="module")
def optuna() -> ModuleType:
    """Imported where it is needed, since that takes a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of SQLAlchemy, which it imports
        return import_module("optuna")


@pytest.fixture
def space(optuna: ModuleType) -> dict[str, Any]:
    return {
        "optimizer.lr": optuna.distributions.UniformDistribution(0.0, 1.0),
        "model.width": optuna.distributions.IntUniformDistribution(1, 8),
        "optimizer": optuna.distributions.CategoricalDistribution(("sgd", "adam")),
    }


def ledger_of(path: Path, *states: str) -> Ledger:
    ledger = Ledger(path)
    entries = []
    for job, state in enumerate(states):
        said = [f"optimizer.lr={job / 10}", f"model.width={job + 1}", "optimizer=adam", "seed=7"]
        entries.append(Entry(job, str(job), said, state=state, objective=float(job) if state == "completed" else None))
        (path / str(job)).mkdir(parents=True)
        (path / str(job) / "epochs.csv").write_text(f"epoch,step,val_acc1\n1,10,{job}\n2,20,{job + 1}\n")
        (path / str(job) / "steps.csv").write_text(f"epoch,step,loss\n1,5,{job}.5\n")
    ledger.create({}, *entries)
    return ledger


def test_a_study_is_what_the_ledger_and_the_tables_say(tmp_path, space):
    ledger = ledger_of(tmp_path, "completed", "pruned", "failed", "running")
    found = trials(ledger, space, by="val_acc1", sign=1)
    assert [trial.state.name for trial in found] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [trial.value for trial in found] == [0.0, 2.0, None]
    assert found[1].params == {"optimizer.lr": 0.1, "model.width": 2, "optimizer": "adam"}
    assert found[1].intermediate_values == {10: 1.0, 20: 2.0}
    assert trials(ledger, space, by=LOSS, sign=-1)[1].intermediate_values == {5: -1.5}
    assert trials(Ledger(tmp_path / "none"), space, by="val_acc1", sign=1) == []


@pytest.mark.parametrize(("direction", "is_bad"), [("maximize", True), ("minimize", False)])
def test_a_trial_worse_than_the_median_is_asked_to_stop(tmp_path, optuna, space, direction, is_bad):
    ledger = ledger_of(tmp_path, *["completed"] * 4, "running")
    table = tmp_path / "4" / "epochs.csv"
    table.write_text("epoch,step,val_acc1\n1,10,0.5\n")
    study = optuna.create_study(direction=direction, pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.add_trials(trials(ledger, space, by="val_acc1", sign=1))
    pruning = Pruning(ledger, {4: study.ask(space)}, by="val_acc1", sign=1)
    running = ledger.entries()[4]
    heartbeat = Heartbeat.create(RunFolder(tmp_path / "4").heartbeat, ranks=2)
    pruning.watch([running])
    assert heartbeat.stop_signal == (signal.SIGTERM if is_bad else 0)
    ended = pruning.settled(running.now("interrupted", reason="SIGTERM"))
    assert (ended.state, ended.reason) == (
        ("pruned", "after step 10: val_acc1 0.5") if is_bad else ("interrupted", "SIGTERM")
    )
    assert pruning.settled(running.now("completed")).state == "completed"


def test_a_search_of_somebody_else_s_is_not_started_again(tmp_path):
    assert arguments_of(tmp_path) is None
    (tmp_path / ARGUMENTS).write_text(json.dumps({"arguments": ["model._target_=os.system"]}))
    assert arguments_of(tmp_path) is None


SEARCH = (
    *("-m", "hydra/sweeper=search", "hydra.sweeper.sampler.seed=3", "optimizer.lr=interval(0.001,0.1)", "logger=csv"),
    *(each for each in SMALL if not each.startswith("optimizer.lr")),
)


def search(path: Path, *more: str):
    return execute(sys.executable, str(RUN), *SEARCH, f"hydra.sweep.dir={path}", *more, cwd=path.parent)


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.slow
def test_resumed_it_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = tmp_path / "whole"
    done = search(whole, "hydra.sweeper.n_trials=3", "trainer.max_steps=4")
    assert done.code == 0, done.err
    proposed = [entry.overrides for entry in Ledger(whole).entries()]
    assert len({tuple(each) for each in proposed}) == 3
    best = yaml.safe_load((whole / "optimization_results.yaml").read_text())
    assert best["best_value"] == max(entry.objective for entry in Ledger(whole).entries())  # of an accuracy
    stopped = tmp_path / "stopped"
    shutil.copytree(whole, stopped)
    lines = Ledger(stopped).path.read_text().splitlines(keepends=True)
    Ledger(stopped).path.write_text("".join(line for line in lines if '"job": 2' not in line))
    shutil.rmtree(stopped / "2")
    Ledger(stopped).write(Ledger(stopped).entries()[1].now("interrupted", reason="SIGINT"))  # and half a trial
    (stopped / "1" / "result.json").unlink()
    done = execute(sys.executable, "-m", "runner", "resume", str(stopped), cwd=ROOT)
    assert done.code == 0, done.err
    assert [entry.overrides for entry in Ledger(stopped).entries()] == proposed
    assert [entry.objective for entry in Ledger(stopped).entries()] == [e.objective for e in Ledger(whole).entries()]
    assert [entry.state for entry in Ledger(whole).entries()] == ["completed"] * 3


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        tail(("hydra.launcher.jobs=1", "parallel=ddp", "launcher.nproc_per_node=2"), id="2 ranks"),
        tail(("hydra.launcher.jobs=2", "hydra.sweeper.n_jobs=2"), id="2 at once"),
    ],
)
def test_trials_of_several_ranks_are_ended_by_the_usual_stop(tmp_path, more):
    path = tmp_path / "search"
    hopeless = ("hydra.sweeper.pruner._target_=optuna.pruners.ThresholdPruner", "+hydra.sweeper.pruner.upper=0")
    long = ("trainer.epochs=2000", "hydra.sweeper.n_trials=2", "hydra.sweeper.prune_by=loss")
    done = search(path, *hopeless, *long, "hydra.sweeper.direction=minimize", *more)
    assert done.code == 0, done.err
    entries = Ledger(path).entries()
    assert [entry.state for entry in entries] == ["pruned", "pruned"]
    assert all(entry.reason.startswith("after step 8: loss ") for entry in entries)
    for entry in entries:
        folder = RunFolder(path / entry.folder)
        assert folder.read_result()["status"] == "interrupted"
        assert folder.last_checkpoint.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("trainer.evaluate_every=0",), "trainer.evaluate_every=0 measures nothing that a search could optimize"),
        (
            ("hydra.sweeper.direction=up",),
            "direction=up is not allowed. Allowed: auto, minimize, maximize",
        ),
        (("optimizer.lr=0.1",), "a search has nothing to vary"),
        (("hydra/sweeper/pruner=median", "hydra.launcher.repeat=2"), "hydra.sweeper.pruner works with"),
        (("hydra/sweeper/sampler=grid", "hydra.sweeper.sampler.seed"), "sampler=grid is a sweep"),
    ],
)
def test_mistakes_are_refused_before_the_first_trial(run_here, tmp_path, more, message):
    path = tmp_path / "search"
    line = [each for each in SEARCH if each.partition("=")[0] not in {one.partition("=")[0] for one in more}]
    done = run_here(*line, f"hydra.sweep.dir={path}", *(each for each in more if "=" in each))
    assert done.code == 2
    assert message in done.err
    assert not (path / "0").exists()
