"""Searches: trials from the ledger, ended early by the parent, resumed."""

import json
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from manyheads.launchers.sweep import run_jobs
from manyheads.launchers.sweep.pruning import LOSS, Judge, Pruning, Reports, jobs, parameters_of
from manyheads.launchers.sweep.run_jobs import command_of
from manyheads.launchers.sweep.search import Search
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, RUN, execute
from tests.in_process import SMALL
from tests.tail import tail, tailed

pytestmark = pytest.mark.filterwarnings("ignore:.* is experimental")


@pytest.fixture(scope="module")
def optuna() -> ModuleType:
    """Imported where it is needed, since that takes a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of SQLAlchemy, which it imports
        return import_module("optuna")


@pytest.fixture
def space(optuna: ModuleType) -> dict[str, Any]:
    """As the sweeper of the installed version reads it."""
    from hydra_plugins.hydra_optuna_sweeper._impl import create_params_from_overrides

    typed = ["optimizer.lr=interval(0.0,1.0)", "model.width=interval(1,8)", "optimizer=choice(sgd,adam)"]
    return dict(create_params_from_overrides(typed)[0])


def ledger_of(path: Path, *states: str) -> Ledger:
    ledger = Ledger(path)
    entries = []
    for job, state in enumerate(states):
        said = [f"optimizer.lr={job / 10}", f"model.width={job + 1}", "optimizer=adam", "seed=7"]
        entries.append(Entry(job, str(job), said, state=state, objective=float(job) if state == "completed" else None))
        RunFolder(path / str(job)).write_config({"trainer": {"epochs": 3, "max_steps": None}})
        (path / str(job) / "epochs.csv").write_text(f"epoch,step,val_acc1\n1,10,{job}\n2,20,{job + 1}\n")
        (path / str(job) / "steps.csv").write_text(f"epoch,step,loss\n1,5,{job}.5\n")
    ledger.create({}, *entries)
    return ledger


def judged(ledger: Ledger, trial: Any, job: int, *, by: str, sign: int, prunes: bool = False) -> Judge:
    """The judge of a job whose rows it has read."""
    judge = Judge(trial, prunes=prunes)
    judge.read(Reports(ledger, jobs(ledger)[job][0], by=by, sign=sign))
    return judge


def test_a_trial_is_what_the_ledger_and_the_tables_say(tmp_path, optuna, space):
    ledger = ledger_of(tmp_path, "completed", "pruned", "failed")
    study = optuna.create_study()
    found = [
        judged(ledger, study.ask(space), job, by="val_acc1", sign=1).told(entries)
        for job, entries in jobs(ledger).items()
    ]
    assert [trial.state.name for trial in found] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [trial.value for trial in found] == [0.0, 2.0, None]
    assert found[1].intermediate_values == {10: 1.0, 20: 2.0}
    assert parameters_of(jobs(ledger)[1][0], space) == {"optimizer.lr": 0.1, "model.width": 2, "optimizer": "adam"}
    by_loss = judged(ledger, study.ask(space), 1, by=LOSS, sign=-1).told(jobs(ledger)[1])
    assert by_loss.intermediate_values == {5: -1.5}
    assert jobs(Ledger(tmp_path / "none")) == {}


@pytest.mark.parametrize(("direction", "is_bad"), [("maximize", True), ("minimize", False)])
def test_a_trial_worse_than_the_median_is_asked_to_stop(tmp_path, optuna, space, direction, is_bad):
    ledger = ledger_of(tmp_path, *["completed"] * 4, "running")
    (tmp_path / "4" / "epochs.csv").write_text("epoch,step,val_acc1\n1,10,0.5\n")
    study = optuna.create_study()
    done = [judged(ledger, study.ask(space), job, by="val_acc1", sign=1).told(jobs(ledger)[job]) for job in range(4)]
    study = optuna.create_study(direction=direction, pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.add_trials(done)
    pruning = Pruning(ledger, {4: Judge(study.ask(space), prunes=True)}, by="val_acc1", sign=1)
    running = ledger.entries()[4]
    heartbeat = Heartbeat.create(RunFolder(tmp_path / "4").heartbeat, ranks=2)
    pruning.watch([running])
    assert heartbeat.stop_signal == (signal.SIGTERM if is_bad else 0)
    for state in ("interrupted", "completed"):  # also if it came to its end before it was asked
        ended = pruning.recorded(running.now(state, reason="SIGTERM", objective=0.7))
        expected = ("pruned", "after step 10: val_acc1 0.5", None) if is_bad else (state, "SIGTERM", 0.7)
        assert (ended.state, ended.reason, ended.objective) == expected


def test_a_trial_that_has_reached_its_last_epoch_is_not_pruned(tmp_path, optuna, space):
    ledger = ledger_of(tmp_path, "completed")
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(lower=0))
    (tmp_path / "0" / "epochs.csv").write_text("epoch,step,val_acc1\n3,30,-1.0\n")
    assert judged(ledger, study.ask(space), 0, by="val_acc1", sign=1, prunes=True).end is None
    (tmp_path / "0" / "epochs.csv").write_text("epoch,step,val_acc1\n2,20,-1.0\n")
    assert judged(ledger, study.ask(space), 0, by="val_acc1", sign=1, prunes=True).end == (20, -1.0, False)


class Killed(BaseException):
    """In place of SIGKILL."""


class Trained:
    """Stands for training: writes a trial's rows, one after the other, and stops when a search asks for that.

    ``fate``: by job, what happens after its second row, once: ``killed`` is the search, ``failed`` the trial.
    ``looks``: whether the parent happens to look at a job after an epoch.
    """

    pruning: Any = None

    def __init__(self, ledger: Ledger, fate: dict[int, str], looks: Callable[[int, int], bool]):
        self.ledger, self.fate, self.looks = ledger, fate, looks

    def launch(self, overrides: list[tuple[str, ...]], initial_job_idx: int) -> None:
        entries = [Entry(i, str(i), list(said)) for i, said in enumerate(overrides, initial_job_idx)]
        for entry in entries:
            RunFolder(self.ledger.sweep / entry.folder).write_config({"trainer": {"epochs": 4, "max_steps": None}})
        if self.ledger.exists():
            self.ledger.write(*entries)
        else:
            self.ledger.create({}, *entries)
        self.run(entries, pruning=self.pruning)

    def run(self, entries: list[Entry], *_: Any, pruning: Any, **__: Any) -> None:
        for entry in entries:
            self.ledger.write(entry.now("running"))
            self.ledger.write(pruning.recorded(self.train(entry, pruning)))

    def train(self, entry: Entry, pruning: Any) -> Entry:
        folder, lines = RunFolder(self.ledger.sweep / entry.folder), ["epoch,step,val_acc1"]
        lr = float(dict(each.split("=") for each in entry.overrides)["optimizer.lr"])
        heartbeat = Heartbeat.create(folder.heartbeat, ranks=1)
        for epoch in range(1, 5):
            value = epoch * (1 - (lr - 0.3) ** 2) + 0.1 * ((entry.job * 7 + epoch) % 5)
            lines.append(f"{epoch},{10 * epoch},{value}")
            folder.epochs.write_text("\n".join([*lines, ""]))
            if epoch == 2 and (fate := self.fate.pop(entry.job, None)):
                if fate == "killed":
                    raise Killed
                return entry.now(fate)
            if self.looks(entry.job, epoch):
                pruning.watch([entry])
            if heartbeat.stop_signal:
                return entry.now("interrupted")
        scores = {"monitor": "val_acc1", "direction": "max"}
        folder.write_json(folder.result, {"status": "completed", "scores": scores})
        return entry.now("completed", objective=value)


HYPERBAND = "manyheads.launchers.sweep.pruning"
PRUNERS = {
    "median": {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 4},
    "halving": {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 10, "reduction_factor": 2},
    "hyperband": {
        "_target_": "manyheads.launchers.sweep.pruning.hyperband",
        "min_resource": 10,
        "reduction_factor": 2,
    },
}


@pytest.fixture
def searched(optuna: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What became of a search of 16 trials, resumed until it is complete; TPE draws the first 10 at random."""

    def outcome(name: str, pruner: str, *, n_jobs: int, fate: dict[int, str], looks: Callable) -> list[Any]:
        sweeper = {
            "sampler": {"_target_": "optuna.samplers.TPESampler", "seed": 3},
            "pruner": PRUNERS[pruner],
            "direction": "auto",
            "prune_by": "auto",
            "n_trials": 16,
            "n_jobs": n_jobs,
            "max_failure_rate": 0.0,
            "params": {"optimizer.lr": "interval(0.0,1.0)"},
        }
        config = OmegaConf.create(
            {"hydra": {"sweeper": sweeper, "sweep": {"dir": str(tmp_path / name)}, "launcher": {}}}
        )
        ledger, left = Ledger(tmp_path / name), dict(fate)
        trained = Trained(ledger, left, looks)
        monkeypatch.setattr(run_jobs, "run_jobs", trained.run)
        monkeypatch.setattr(run_jobs, "conclude", lambda *_, **__: None)
        for _ in range(1 + len(fate)):
            with suppress(Killed, RunFailed):
                Search(config, trained, []).run()
        assert not left
        return [(each.overrides, each.state, each.reason, each.objective) for each in ledger.entries()]

    return outcome


def test_hyperbands_brackets_are_the_same_in_every_process(optuna):
    """Optuna 2 takes hash(), which Python seeds anew in each."""
    hyperband = import_module(HYPERBAND).hyperband(min_resource=1, max_resource=9)
    study = optuna.create_study(study_name="search", pruner=hyperband)
    for _ in range(6):
        trial = study.ask()
        trial.report(1.0, 1)
        trial.should_prune()
    assert [hyperband._get_bracket_id(study, trial) for trial in study.trials] == [1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("pruner", "n_jobs"), tailed(product(PRUNERS, [1, 3]), always=[("median", 1), ("hyperband", 3)])
)
def test_a_search_is_the_same_however_often_it_is_killed_and_whenever_it_looks(searched, pruner, n_jobs):
    quiet = searched("quiet", pruner, n_jobs=n_jobs, fate={}, looks=lambda job, epoch: True)
    fate = {1: "killed", 4: "failed", 7: "killed", 11: "failed", 12: "killed", 15: "killed"}
    hurt = searched("hurt", pruner, n_jobs=n_jobs, fate=fate, looks=lambda job, epoch: (job + epoch) % 3 == 0)
    assert hurt == quiet
    states = [state for _, state, _, _ in quiet]
    assert {*states} == {"completed", "pruned"}
    assert "pruned" in states[10:]


def test_a_search_of_somebody_else_s_is_not_started_again(tmp_path):
    assert command_of(tmp_path) is None
    about = {"options": {}, "arguments": ["model._target_=os.system"], "is_search": True}
    Ledger(tmp_path).path.write_text(json.dumps(about) + "\n")
    assert command_of(tmp_path) is None


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
    """In a folder that is reached by a link, as on machines with a scratch disk."""
    outputs = tmp_path / "outputs"
    (tmp_path / "scratch").mkdir()
    outputs.symlink_to(tmp_path / "scratch")
    whole = outputs / "whole"
    done = search(whole, "hydra.sweeper.n_trials=3", "trainer.max_steps=4")
    assert done.code == 0, done.err
    proposed = [entry.overrides for entry in Ledger(whole).entries()]
    assert len({tuple(each) for each in proposed}) == 3
    best = yaml.safe_load((whole / "optimization_results.yaml").read_text())
    assert best["best_value"] == max(entry.objective for entry in Ledger(whole).entries())  # of an accuracy
    stopped = outputs / "stopped"
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
def test_mistakes_are_refused_before_the_first_trial(run_here, optuna, tmp_path, more, message):
    path = tmp_path / "search"
    line = [each for each in SEARCH if each.partition("=")[0] not in {one.partition("=")[0] for one in more}]
    done = run_here(*line, f"hydra.sweep.dir={path}", *(each for each in more if "=" in each))
    assert done.code == 2
    assert message in done.err
    assert not (path / "0").exists()


def test_too_many_trials_that_fail_end_it_with_this_sentence(run_here, optuna, tmp_path):
    """What ends a sweep is not replaced by the exit code that its jobs would give."""
    refused = ("trainer.clip_norm=1", "trainer.clip_value=1", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=2")
    done = run_here(*SEARCH, *refused, f"hydra.sweep.dir={tmp_path / 'search'}")
    assert done.code == 1
    assert "2 of 2 trials failed. Allowed: a fraction of hydra.sweeper.max_failure_rate=0." in done.err


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_slurm"])
def test_a_launcher_that_writes_no_ledger_is_refused_before_the_first_trial(run_here, optuna, tmp_path, launcher):
    if launcher not in ("basic", "joblib"):  # as a plugin stores its option
        target = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
        ConfigStore.instance().store(group="hydra/launcher", name=launcher, node={"_target_": target})
    done = run_here(*SEARCH, f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path / 'search'}")
    assert done.code == 2
    assert f"hydra/launcher={launcher}: hydra/sweeper=search reads the ledger, which only hydra/launcher=" in done.err
    assert not (tmp_path / "search" / "0").exists()


def test_a_direction_that_is_not_recorded_is_not_guessed(searched, monkeypatch):
    monkeypatch.setattr(RunFolder, "read_result", lambda self: {"scores": {}})
    with pytest.raises(ConfigurationError, match=r"direction=auto: trial 0 has no result that says whether larger"):
        searched("unknown", "median", n_jobs=1, fate={}, looks=lambda job, epoch: True)


def _trial(sweep: Path, objective: float | None, version: int) -> Entry:
    folder, entry = RunFolder(sweep / "0"), Entry(0, "0", ["optimizer.lr=0.1"])
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.epochs.write_text("epoch,step,val_acc1\n1,10,\n")
    scores = {"monitor": "val_acc1", "direction": "max", "metrics": {"acc1": {"version": version}}}
    folder.write_json(folder.result, {"status": "completed", "scores": scores})
    return entry.now("completed", objective=objective)


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ([(None, 1)], "checkpoint.monitor=val_acc1 has no value in trial 0"),
        ([(90.0, 1)], r"hydra.sweeper.prune_by=auto has no value in trial 0. Allowed: auto, loss, epoch, step"),
        ([(90.0, 1), (91.0, 2)], "val_acc1 has several definitions: version 1 in trial 0; version 2 in trial 1"),
    ],
)
def test_trials_that_cannot_be_compared_end_the_search(optuna, tmp_path, trials, message):
    sweeper = {"sampler": {"_target_": "optuna.samplers.TPESampler"}, "pruner": PRUNERS["median"], "direction": "auto"}
    sweeper |= {"prune_by": "auto", "n_trials": 2, "n_jobs": 1, "params": {"optimizer.lr": "interval(0.0,1.0)"}}
    if len(trials) > 1:
        sweeper["pruner"] = {"_target_": "optuna.pruners.NopPruner"}
    config = OmegaConf.create({"hydra": {"sweeper": sweeper, "sweep": {"dir": str(tmp_path)}, "launcher": {}}})
    search = Search(config, Trained(Ledger(tmp_path), {}, lambda *_: True), [])
    search._monitor = "val_acc1"

    def learn(number: int, objective: float | None, version: int) -> None:
        entry, folder = replace(_trial(tmp_path, objective, version), job=number), RunFolder(tmp_path / "0")
        search._refuse_unmeasured(entry, folder.read_result()["scores"], folder)

    *compared, last = enumerate(trials)
    for number, trial in compared:
        learn(number, *trial)
    with pytest.raises(ConfigurationError, match=message):
        learn(last[0], *last[1])


@pytest.mark.parametrize(("key", "value"), [("n_trials", 0), ("n_trials", -1), ("n_jobs", 0)])
def test_a_search_without_trials_is_refused(optuna, tmp_path, key, value):
    sweeper = {"sampler": {"_target_": "optuna.samplers.TPESampler"}, "pruner": PRUNERS["median"], "direction": "auto"}
    sweeper |= {"prune_by": "auto", "n_trials": 2, "n_jobs": 1, "params": {"optimizer.lr": "interval(0.0,1.0)"}}
    hydra = {"sweeper": sweeper | {key: value}, "sweep": {"dir": str(tmp_path)}, "launcher": {}}
    with pytest.raises(
        ConfigurationError, match=rf"hydra.sweeper.{key}={value} is not allowed. Allowed: an integer of"
    ):
        Search(OmegaConf.create({"hydra": hydra}), Trained(Ledger(tmp_path), {}, lambda *_: True), [])
