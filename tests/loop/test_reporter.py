"""Rows from sums, and which epoch is the best."""

import logging
import math
from typing import Any

import psutil
import pytest
import torch

from manyheads.runner.data.rank.batches import Unreadable
from manyheads.runner.logger.terminal import Display
from manyheads.runner.loop.log_windows import LogRow
from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter, milliseconds, peak_memory_mb, thousands
from manyheads.runner.loop.scores import Scores
from manyheads.runner.parallel.rank.single import Single
from manyheads.runner.run.tables.columns import STEP_COLUMNS, epoch_columns
from manyheads.runner.run.tables.writer import NullWriter
from manyheads.runner.task.rank.classification import Classification

SUMS: dict[str, Any] = {
    "loss": 30.0,
    "count": 20.0,
    "counted": 20.0,
    "statistics": {
        name: torch.tensor(value).double() for name, value in {"correct1": 5, "correct5": 15, "judged": 20}.items()
    },
}


class Kept(NullWriter):
    def __init__(self):
        self.steps: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []

    def step(self, row):
        self.steps.append(row)

    def epoch(self, row):
        self.epochs.append(row)


def reporter(*, monitor: str = "val_acc1", ranks: int = 1) -> Reporter:
    place = {"rank": 0, "local_rank": 0, "world_size": ranks, "device_type": "cpu"}
    scores = Scores(Classification(loss=torch.nn.CrossEntropyLoss(), reduction="auto"), monitor=monitor)
    return Reporter(recorder=Kept(), display=Display(), parallel=Single(**place), epochs=2, scores=scores)


def measured(**values: float) -> dict[str, Any]:
    return {"val_seconds": 1.0, "val_loss": 1.0, "val_acc1": 50.0, "val_acc5": 90.0, "val_samples": 10, **values}


def test_a_row_of_an_interval():
    reports, progress = reporter(ranks=2), Progress(epoch=1, step=35, samples=600)
    progress.interval = Sums(**SUMS, seconds=4.0, data_seconds=1.0)  # seconds of two ranks together
    reports.interval(progress, LogRow(step=30, lr=0.1, norm=2.0, time=1234.5678))
    (row,) = reports.recorder.steps
    assert tuple(row) == STEP_COLUMNS
    assert row == {
        "epoch": 2,
        "step": 30,
        "samples": 600,
        "loss": 1.5,
        "lr": 0.1,
        "grad_norm": 2.0,
        "samples_per_second": 10.0,
        "data_fraction": 0.25,
        "time": 1234.568,
    }
    assert progress.interval == Sums()


class Shown(Display):
    def __init__(self):
        self.words, self.lines = {}, []

    def interval(self, step, words):
        self.words = words

    def epoch(self, words):
        self.lines.append("  ".join(words))


@pytest.mark.parametrize(
    ("tokens", "pace", "speed", "line"),
    [(False, "200 ms/step", "10 samples/s", "4 samples/s"), (True, "200 ms/step", "100 tokens/s", "40 tokens/s")],
)
def test_speed_is_in_what_the_loss_averages_over(tokens, pace, speed, line):
    reports, progress = reporter(ranks=2), Progress()
    reports.display, reports.scores.task.counts_tokens = Shown(), tokens
    sums = {**SUMS, "counted": 200.0}
    progress.interval, progress.sums = Sums(**sums, seconds=4.0), Sums(**sums)
    reports.start(progress, total=30)
    reports.interval(progress, LogRow(step=10, lr=0.1, norm=2.0, time=0.0))
    reports.epoch(progress, 5.0, {})
    assert reports.display.words["pace"] == pace
    assert reports.display.words["speed"] == speed
    assert reports.display.lines == [f"epoch 1/2  train 0.1500 25.00%  {line}"]


def test_short_numbers():
    assert [thousands(each) for each in (0.4, 9999, 12_345, 999_499, 1_234_567)] == [
        *("0", "9,999", "12.3k", "999k", "1.23M")
    ]
    assert [milliseconds(each) for each in (0.001234, 0.01234, 0.1234, 12.34)] == ["1.23", "12.3", "123", "12,340"]


def test_an_interval_of_nothing_has_no_loss():
    reports, progress = reporter(), Progress(interval=Sums(seconds=1.0))
    reports.interval(progress, LogRow(step=30, lr=0.1, norm=math.nan, time=0.0))
    assert math.isnan(reports.recorder.steps[0]["loss"])


def test_a_row_of_an_epoch_evaluated_or_not():
    reports, progress = reporter(), Progress(epoch=4, step=50, started=1.0, sums=Sums(**SUMS))
    reports.epoch(progress, 5.0, measured())
    assert progress.metrics == {
        "train_loss": 1.5,
        "train_acc1": 25.0,
        "train_acc5": 75.0,
        "val_loss": 1.0,
        "val_acc1": 50.0,
        "val_acc5": 90.0,
        "val_samples": 10,
    }
    reports.epoch(progress, 5.0, {})
    first, second = reports.recorder.epochs
    assert set(first) == set(second) == {*epoch_columns(reports.scores.names("train"), reports.scores.names("val"))}
    assert (first["epoch"], first["train_loss"], first["samples_per_second"]) == (5, 1.5, 4.0)
    assert second["val_loss"] is None


@pytest.mark.parametrize(
    ("monitor", "values", "best"),
    [
        ("val_acc1", [50.0, 60.0, 60.0, 55.0], [True, True, False, False]),
        ("val_loss", [2.0, 1.0, 1.0, 1.5], [True, True, False, False]),
        ("val_loss", [2.0, float("nan"), 1.0], [True, False, True]),
        ("val_acc5", [0.0, 10.0], [True, True]),
    ],
)
def test_the_best_epoch_is_the_first_with_the_best_value(monitor, values, best):
    reports, progress, said = reporter(monitor=monitor), Progress(sums=Sums(**SUMS)), []
    for epoch, value in enumerate(values):
        progress.epoch = epoch
        said.append(reports.epoch(progress, 1.0, measured(**{monitor: value}))[1])
    assert said == best
    assert progress.best["epoch"] == len(best) - best[::-1].index(True)


def test_an_epoch_without_evaluation_is_never_the_best():
    progress = Progress(sums=Sums(**SUMS))
    assert not reporter().epoch(progress, 1.0, {})[1]
    assert progress.best is None


def test_unreadable_samples_are_in_the_log_once(caplog):
    reports, a, b = reporter(), Unreadable(0, "a.jpg", "broken"), Unreadable(1, "b.jpg", "broken")
    with caplog.at_level(logging.WARNING):
        reports.note_corrupt([b, a])
        reports.note_corrupt([a])  # in the next epoch
    assert [record.args for record in caplog.records] == [("a.jpg",), ("b.jpg",)]


@pytest.mark.slow
def test_peak_memory_is_in_megabytes_and_grows():
    before = peak_memory_mb(torch.device("cpu"))
    held = psutil.Process().memory_info().rss / 2**20
    kept = torch.ones(int(before - held + 200) * 2**20 // 8, dtype=torch.float64)
    assert before + 150 < peak_memory_mb(torch.device("cpu")) < 50_000
    del kept
