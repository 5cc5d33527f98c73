"""Runs that end before their last epoch, evaluate within one, or see a part of the data only."""

import math
import re
import signal

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.train_settings import Ending
from manyheads.runner.option.rules import seconds
from tests.in_process import attempt, config, rows, small, train
from tests.loop.test_session import killed_after, tables
from tests.loop.test_trainer import assert_same, synthetic, weights


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90", 90),
        ("90s", 90),
        ("1.5h", 5400),
        ("2d", 172800),
        ("h", None),
        ("0", None),
        (0, None),
    ],
)
def test_durations(written, meant):
    assert seconds(written) == meant


def test_max_time_ends_the_run_evaluated_and_a_longer_one_goes_on(tmp_path):
    run = train(tmp_path / "short", small("trainer.max_time=0.001", "trainer.epochs=50", "trainer.log_every=4"))
    result = run.folder.read_result()
    assert (result["status"], result["ended"]) == ("completed", "max_time")
    assert result["steps"] < 100
    assert result["metrics"]["val_samples"] == 37
    again = train(tmp_path / "short", small("trainer.max_time=0.001", "trainer.epochs=50", "trainer.log_every=4"))
    assert again.folder.read_result()["steps"] == result["steps"]
    resume = f"checkpoint.resume={run.folder.last_checkpoint}"
    longer = train(tmp_path / "long", small("trainer.max_time=8h", resume))
    whole = train(tmp_path / "whole", small())
    assert "ended" not in longer.folder.read_result()
    assert longer.folder.read_result()["steps"] == whole.folder.read_result()["steps"] == 40


@pytest.mark.parametrize(
    ("scores", "direction", "min_delta", "ends_with"),
    [
        ([0.5, 0.6, 0.6, 0.6], "max", 0.0, 4),
        ([0.5, 0.4, 0.55, 0.5, 0.5], "max", 0.0, 5),
        ([0.5, 0.55, 0.58], "max", 0.1, 3),
        ([1.0, math.nan, None, 0.9, 0.95, 0.95], "min", 0.0, 6),
        ([math.nan, math.nan], "min", 0.0, 2),
    ],
)
def test_patience_counts_evaluations_without_a_better_one(scores, direction, min_delta, ends_with):
    ending, progress, ended = Ending(patience=2, min_delta=min_delta), Progress(), []
    for score in scores:
        ending.evaluated(score, direction, progress)
        ended.append(progress.ended)
    assert ended == [None] * (ends_with - 1) + ["patience"]


def test_a_run_without_progress_ends_and_is_resumed_to_the_same_end(tmp_path):
    stuck = ("optimizer.lr=1e-12", "trainer.epochs=9", "trainer.patience=2", "data.train_samples=32")
    whole = train(tmp_path / "whole", small(*stuck))
    result = whole.folder.read_result()
    assert (result["epochs"], result["ended"], result["status"]) == (3, "patience", "completed")
    killed_after(tmp_path / "killed", small(*stuck), 9)
    assert tables(train(tmp_path / "killed", small(*stuck))) == tables(whole)


@pytest.fixture(scope="module")
def within(tmp_path_factory):
    path = tmp_path_factory.mktemp("within")
    return train(path, small("trainer.evaluate_every=7steps", "trainer.patience=99", "checkpoint.keep=9"))


def test_evaluations_within_epochs(within, tmp_path):
    plain = train(tmp_path, small())
    assert within.folder.read_result()["weights_sha256"] == plain.folder.read_result()["weights_sha256"]
    found = rows(within.folder.evaluations)
    assert [(int(row["epoch"]), int(row["step"])) for row in found] == [(1, 7), (1, 14), (2, 21), (2, 28), (2, 35)]
    assert all(float(row["val_acc1"]) > 0 and row["val_samples"] == "37" for row in found)
    epochs = rows(within.folder.epochs)
    assert [row["val_acc1"] != "" for row in epochs] == [False, True]  # the last one always
    best = within.folder.read_result()["best"]
    assert best["val_acc1"] == max(float(row["val_acc1"]) for row in [*found, epochs[1]])


@pytest.mark.parametrize("dies", [8, 14, 22, 36])
def test_evaluations_within_epochs_are_resumed_to_the_same(within, tmp_path, dies):
    options = small("trainer.evaluate_every=7steps", "trainer.patience=99", "checkpoint.keep=9")
    killed_after(tmp_path, options, dies)
    resumed = train(tmp_path, options)
    assert tables(resumed) == tables(within)
    timings = ("time", "val_seconds")
    assert rows(resumed.folder.evaluations, without=timings) == rows(within.folder.evaluations, without=timings)


def test_a_run_that_is_stopped_before_an_evaluation_makes_it_when_it_goes_on(within, tmp_path):
    options = small("trainer.evaluate_every=7steps", "trainer.patience=99", "checkpoint.keep=9")
    run = attempt(tmp_path, options)
    make = run.trainer.make

    def stop_after_seven(*args, **options):
        if run.trainer.progress.step == 6:
            run.trainer.heartbeat.stop_signal = signal.SIGTERM
        return make(*args, **options)

    run.trainer.make = stop_after_seven
    run.train(seed=1, state=None)
    assert run.folder.read_result()["steps"] == 7
    assert rows(run.folder.evaluations) == []
    resumed = train(tmp_path, options)
    assert len(rows(resumed.folder.evaluations)) == 5
    assert resumed.folder.read_result()["weights_sha256"] == within.folder.read_result()["weights_sha256"]


def test_clip_value_clips_as_pytorch_does(tmp_path):
    run = train(tmp_path, small("trainer.clip_value=0.02", "optimizer=adamw", "trainer.max_steps=5"))
    images, targets = synthetic(train=True)
    torch.manual_seed(1)
    model = type(run.parallel.unwrap(run.update.model))(num_classes=3, width=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.01, fused=True)
    for step, request in zip(range(5), run.trainer.train.sampler.epoch(0), strict=False):
        chosen = torch.from_numpy(request.indices.astype("int64"))
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / 5)) / 2
        cross_entropy(model(images[chosen]), targets[chosen]).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.02)
        optimizer.step()
        optimizer.zero_grad()
    assert_same(weights(run.trainer), model.state_dict())


@pytest.mark.parametrize(
    ("override", "updates", "seen"), [("limit_train=3", 3, 37), ("limit_train=0.5", 10, 37), ("limit_val=2", 20, 16)]
)
def test_limits(tmp_path, override, updates, seen):
    run = train(tmp_path, small(f"trainer.{override}", "trainer.epochs=1"))
    assert (run.trainer.progress.step, run.folder.read_result()["metrics"]["val_samples"]) == (updates, seen)


def test_a_limited_evaluation_of_sorted_samples_is_of_a_random_sample_the_same_for_every_seed(tmp_path, capsys):
    def evaluated(*overrides: str) -> list[list[int]]:
        given = ("data=custom", "data._target_=tests.data.own_sets.Sorted", "model=mlp", "model.num_inputs=8")
        run = train(tmp_path / str(overrides), small(*given, "trainer.test=true", "trainer.epochs=1", *overrides))
        assert run.trainer.test is not None
        loaders = run.trainer.evaluation.loader, run.trainer.test.loader
        return [[i for request in each.sampler.epoch(0) for i in request.indices.tolist()] for each in loaders]

    val, test = evaluated("trainer.limit_val=2")
    printed = " ".join(capsys.readouterr().out.split())
    assert "16 (a random sample, drawn by data.split_seed) of 64 validation samples" in printed
    assert val == test
    assert {index < 32 for index in val} == {True, False}  # both classes
    first = evaluated("trainer.limit_val=1")[0]
    assert evaluated("trainer.limit_val=2", "trainer.limit_test=1", "seed=7") == [val, first]
    assert evaluated("trainer.limit_val=2", "data.split_seed=1")[0] != val


def test_overfit_trains_on_the_same_batches_in_each_epoch(tmp_path):
    run = attempt(tmp_path, small("trainer.overfit=2", "trainer.epochs=30", "model.width=8"))
    epochs = [[request.indices.tolist() for request in run.trainer.train.sampler.epoch(epoch)] for epoch in (0, 7)]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 2
    run.train(seed=1, state=None)
    assert float(rows(run.folder.epochs)[-1]["train_acc1"]) == 100


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("trainer.clip_norm=1", "trainer.clip_value=1"), "are two ways to clip gradients"),
        (("trainer.patience=2", "trainer.evaluate_every=0"), "never measured with trainer.evaluate_every=0"),
        (("trainer.max_time=soon",), "Allowed: seconds, or 90s, 30m, 8h, 2d"),
        (("trainer.evaluate_every=0steps",), "Allowed: an integer of at least 0 or 500steps"),
        (("trainer.limit_train=1.5",), "Allowed: an integer of at least 1 or a number above 0 and below 1"),
    ],
)
def test_what_says_nothing_is_refused(overrides, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        config(*overrides)
