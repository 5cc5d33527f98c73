"""A monitored number without a value is refused or reported, and never acted on silently."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.build import build_monitor
from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.monitor import Monitor
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.train_settings import Ending
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.option.locate import locate
from manyheads.runner.scheduler.rank.plateau import Plateau
from manyheads.runner.scheduler.rank.schedules import Constant, Schedule
from manyheads.runner.task.rank.regression import Regression
from manyheads.runner.task.rank.task import Task
from tests.in_process import small, train, typed

NOWHERE = f"+metrics.gone._target_={__name__}.Gone"
MONITORED = (NOWHERE, "checkpoint.monitor=val_gone")


class Gone(Metric):
    """A metric that has no value, whatever the data."""

    def statistics(self, outputs, batch):
        return {}

    def value(self, sums):
        return None


class Judged(Task):
    metrics = (Gone("gone"),)
    monitor = "gone"


class Listening(Schedule):
    """A schedule of a user that acts on the monitored number."""

    def evaluated(self, score, direction):
        raise AssertionError("it has no value")


def plateau(**keys):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    common = {"updates_per_epoch": 1, "total_updates": 9, "gamma": 0.1, "patience": 1, "threshold": 0, "min_factor": 0}
    return Plateau(optimizer, **common | keys)


def monitor(readers, said, *, task=None, schedule=None):
    ending = Ending(patience=3)
    return Monitor(Scores(task or Judged()), schedule or plateau(), ending, readers=readers, say=said.append)


@pytest.mark.parametrize("reader", ["trainer.patience=3", "scheduler=plateau", "trainer.test=true"])
def test_what_acts_on_a_number_without_a_value_ends_the_run(reader):
    row = {"val_gone": None, "val_loss": 1.0, "val_samples": 8}
    with pytest.raises(ConfigurationError, match=r"=val_gone has no value: it cannot be computed .* these 8 ") as told:
        monitor([reader], []).evaluated(row, Progress())
    assert f"{reader} needs it. Set checkpoint.monitor=val_loss, or leave out {reader}." in str(told.value)


def test_if_nothing_acts_on_it_that_is_said_once():
    said: list[str] = []
    watched, progress = monitor([], said), Progress()
    watched.evaluated({"val_gone": None, "val_loss": None}, progress)  # not evaluated
    assert not said
    for _ in range(2):
        watched.evaluated({"val_gone": None, "val_loss": 1.0, "val_samples": 8}, progress)
    assert len(said) == 1
    assert "val_gone has no value" in said[0]
    assert "there is no best.pt" in said[0]


def test_without_validation_samples_it_is_refused_before_training():
    monitor([], []).begin(Progress(), samples=0)
    with pytest.raises(ConfigurationError, match=r"val_gone has no value: there are no validation samples. trainer.pa"):
        monitor(["trainer.patience=3"], []).begin(Progress(), samples=0)


def test_without_evaluations_it_is_refused_before_training():
    monitor([], []).begin(Progress(), samples=8, evaluates=False)
    with pytest.raises(
        ConfigurationError, match=r"has no value: trainer.evaluate_every=0 never measures it. scheduler"
    ):
        monitor(["scheduler=own"], []).begin(Progress(), samples=8, evaluates=False)


def test_a_best_value_of_another_definition_is_forgotten_once(monkeypatch):
    said: list[str] = []
    best = {"epoch": 1, "val_gone": 3.0, "val_loss": 1.0}
    schedule = plateau()
    schedule.evaluated(0.1, "max")
    progress = Progress(step=4, best=best, record=3.0, waited=2)
    monitor([], said, schedule=schedule).begin(progress, samples=8)  # of an earlier release, as version 1
    assert (progress.best, progress.record, progress.waited, said) == (best, 3.0, 2, [])
    monkeypatch.setattr(Gone, "version", 2)
    monitor([], said, schedule=schedule).begin(progress, samples=8)
    assert (progress.best, progress.record, progress.waited, schedule.state_dict()["best"]) == (None, None, 0, None)
    assert said == [
        "val_gone has several definitions: version 1 in the checkpoint; version 2 in this run. Its values are not "
        "compared. So the search for the best starts over."
    ]
    monitor([], said).begin(progress, samples=8)
    assert len(said) == 1


def test_sums_of_another_definition_are_left_out_of_an_epoch(monkeypatch):
    """What an older release summed in the first part of an epoch has other shapes, or another meaning."""
    task = Regression(loss=torch.nn.MSELoss(), reduction="mean")
    older = {"monitor": "val_mae", "version": 1, "metrics": {"mae": {"version": 1}, "r2": {"version": 1}}}
    for epoch_step, kept in ((0, True), (3, False)):
        said: list[str] = []
        sums = Sums(
            loss=8.0, count=4, counted=4, statistics={"squares": torch.tensor(9.0), "values": torch.tensor(4.0)}
        )
        progress = Progress(epoch=1, step=9, epoch_step=epoch_step, sums=sums, interval=replace(sums), scores=older)
        watched = monitor([], said, task=task)
        watched.begin(progress, samples=8)
        assert bool(progress.sums.statistics) == bool(progress.interval.counted) == kept
        assert progress.sums.count == 4
        told = "train_loss, train_mae, train_r2 of epoch 2 are measured from update 4 of the epoch on: "
        assert any(line.startswith(told) for line in said) != kept
    assert watched.scores.of("train", progress.sums) == {"train_loss": None, "train_mae": None, "train_r2": None}
    watched.begin(progress, samples=8)
    assert len(said) == 2


def test_another_monitor_has_other_records():
    progress = Progress(
        step=4, record=0.3, waited=2, best={"epoch": 1, "val_gone": 3.0}, scores={"monitor": "val_loss"}
    )
    monitor([], []).begin(progress, samples=8)
    assert (progress.record, progress.waited, progress.best) == (None, 0, {"epoch": 1, "val_gone": 3.0})


def test_readers():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    common = {"updates_per_epoch": 1, "total_updates": 9}

    def readers(run, schedule):
        update = SimpleNamespace(scores=Scores(Judged()), schedule=schedule)
        return build_monitor(run, update, Ending(), say=print).readers

    assert readers(typed(), Constant(optimizer, **common)) == []
    run = typed("trainer.patience=2", "checkpoint.monitor=val_loss")
    assert readers(run, Listening(optimizer, **common)) == [
        "checkpoint.monitor=val_loss",
        "trainer.patience=2",
        "scheduler=cosine",
    ]


def test_a_run_is_refused_at_its_first_evaluation(tmp_path):
    with pytest.raises(ConfigurationError, match="checkpoint.monitor=val_gone has no value"):
        train(tmp_path, small(*MONITORED))


def test_a_run_without_best_says_so(tmp_path, capsys):
    train(tmp_path, small("trainer.test=true", "data.val_fraction=0.25", "checkpoint.every=0"))
    assert "there is no best.pt: the last weights are tested" in capsys.readouterr().out


@pytest.mark.parametrize("task", sorted({*options("task")} - {"custom"}))
@pytest.mark.parametrize("scheduler", sorted({*options("scheduler")} - {"custom"}))
def test_no_schedule_acts_on_a_number_without_a_value_under_any_task(task, scheduler):
    """Every scheduler of conf/ that reads the monitored number is refused without one, whatever the task monitors."""
    kind = locate(f"task.{task}", read_option("task", task)["_target_"])
    schedule = locate(f"scheduler.{scheduler}", read_option("scheduler", scheduler)["_target_"])
    reads = isinstance(schedule, type) and schedule.evaluated is not Schedule.evaluated
    assert reads == (scheduler == "plateau")
    said: list[str] = []
    column = f"val_{kind.monitor}"
    scores = SimpleNamespace(monitor=column, direction="min", names=lambda prefix: [column, "val_loss"])
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    acts = [f"scheduler={scheduler}"] if reads else []
    heard = {"readers": acts, "say": said.append}
    watched = Monitor(scores, Constant(optimizer, updates_per_epoch=1, total_updates=9), Ending(), **heard)
    row = {"val_loss": 1.0, column: None, "val_samples": 8}
    if reads:
        with pytest.raises(ConfigurationError, match=f"{column} has no value"):
            watched.evaluated(row, Progress())
    else:
        watched.evaluated(row, Progress())
        assert len(said) == 1
