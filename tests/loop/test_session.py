"""Going on from a checkpoint ends with the very weights and tables of a run that was never interrupted."""

import csv
import logging
import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop import rank_process, session
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.update import Update
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import TIMINGS, attempt, rows, small, train
from tests.tail import each_once

HARD = ("model=custom", "model._target_=tests.zoo.Rich", "optimizer=adamw", "optimizer.lr=0.01")
WAYS = {
    "adamw, dropout, BatchNorm": HARD,
    "warm-up, accumulation": ("scheduler.warmup_epochs=1.3", "trainer.grad_accumulation=2"),
    "step schedule, fp16 with scaler": (
        "scheduler=step",
        "scheduler.every_epochs=0.4",
        "precision=amp",
        "precision.dtype=float16",
    ),
    "loader processes": ("data=custom", "data._target_=tests.zoo.Drawing", "+data.size=161", "data.num_workers=2"),
}


class Killed(BaseException):
    """In place of SIGKILL."""


def die_after(run: Session, step: int) -> None:
    """Let the run end at once after ``step`` updates, without any chance to save."""
    show = run.trainer.reporter.display.update

    def update(done: int) -> None:
        show(done)
        if done == step:
            raise Killed

    run.trainer.reporter.display.update = update  # type: ignore[method-assign]


def killed_after(path: Path, config: dict[str, Any], step: int, *, state: dict[str, Any] | None = None) -> Session:
    """A run that has died after ``step`` updates. ``state``: the checkpoint that it had resumed from."""
    run = attempt(path, config, state=state)
    die_after(run, step)
    with pytest.raises(Killed):
        run.train(seed=1, state=state)
    return run


def tables(run: Session) -> tuple[list, list]:
    return rows(run.folder.steps, without=TIMINGS), rows(run.folder.epochs, without=TIMINGS)


@pytest.fixture(scope="module")
def undisturbed(request, tmp_path_factory):
    """The options of a way to train, and the run that nobody interrupts."""
    options = WAYS[request.param]
    return options, train(tmp_path_factory.mktemp("undisturbed"), small(*options))


# 40 updates, an epoch has 20; rows of steps.csv after 8, 16, 20, 24, 32, 40.
STOPS = {
    "within the first log interval": (5, 7),
    "within an epoch and a log interval": (13, 16),
    "at the end of an epoch, before its evaluation": (20, 22),
    "after an epoch": ("1epoch", 37),
    "in the second epoch": (27, 39),
}


@pytest.mark.parametrize(("undisturbed", "stop"), each_once(WAYS, STOPS), indirect=["undisturbed"])
def test_a_killed_run_resumes_to_the_same(tmp_path, undisturbed, stop):
    every, dies = STOPS[stop]
    options, whole = undisturbed
    config = small(*options, f"checkpoint.every={every}")
    run = killed_after(tmp_path, config, dies)
    run.trainer.train.close()
    assert run.folder.read_result() is None

    resumed = train(tmp_path, config)
    expected, result = whole.folder.read_result(), resumed.folder.read_result()
    assert result["weights_sha256"] == expected["weights_sha256"]
    assert tables(resumed) == tables(whole)
    for name in ("steps", "epochs", "samples_seen", "metrics", "best", "objective"):
        assert result[name] == expected[name], name


def test_being_killed_before_the_first_checkpoint_starts_from_scratch(tmp_path):
    whole = train(tmp_path / "whole", small())
    killed_after(tmp_path / "killed", small(), 11)
    resumed = train(tmp_path / "killed", small())
    assert tables(resumed) == tables(whole)


def test_being_killed_again_and_again(tmp_path):
    whole = train(tmp_path / "whole", small(*HARD))
    config = small(*HARD, "checkpoint.every=3")
    for dies in (4, 5, 14, 22, 40):
        state = CheckpointStore(RunFolder(tmp_path / "killed"), every=0, keep=0).last()
        killed_after(tmp_path / "killed", config, dies, state=state)
    resumed = train(tmp_path / "killed", config)
    assert tables(resumed) == tables(whole)
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]


def test_a_run_that_was_asked_to_stop_goes_on(tmp_path):
    whole = train(tmp_path / "whole", small(*HARD))
    run = attempt(tmp_path / "stopped", small(*HARD))
    run.trainer.heartbeat.stop_signal = signal.SIGTERM
    run.train(seed=1, state=None)
    assert run.trainer.progress.step == 1  # within a log window
    resumed = train(tmp_path / "stopped", small(*HARD))
    assert resumed.folder.read_result()["status"] == "completed"
    assert tables(resumed) == tables(whole)
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]


def test_a_pass_to_warm_up_leaves_no_trace(tmp_path):
    """As each strategy makes on GPUs and of a compiled model, before the clock runs."""
    clipped = (*HARD, "trainer.clip_norm=1.0")
    plain = train(tmp_path / "plain", small(*clipped))
    warmed = attempt(tmp_path / "warmed", small(*clipped))
    warmed.trainer.settings = replace(warmed.trainer.settings, warm_up=True)
    with closing(warmed.trainer):
        warmed.train(seed=1, state=None)
    assert tables(warmed) == tables(plain)
    assert warmed.folder.read_result()["weights_sha256"] == plain.folder.read_result()["weights_sha256"]


class Operations(TorchDispatchMode):
    """Notes the ``names`` of operations."""

    def __init__(self, work: Callable[[], Any]):
        super().__init__()
        self.names: set[str] = set()
        with self:
            self.found = work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def test_what_a_log_window_computes_is_computed_before_the_clock_runs(tmp_path):
    """Otherwise a GPU would load these operations with the first row of steps.csv."""
    trainer = attempt(tmp_path, small()).trainer
    update, batch = trainer.update, trainer.train.example()
    with closing(trainer):
        primed = Operations(lambda: update.prime(lambda: batch, warm_up=True)).names
        passes = Operations(lambda: update.compute_gradients([batch]))
        logged = Operations(update.gradient_norm).names
        logged |= Operations(lambda: update.scores.add_up([passes.found[0].observed] * 3)).names
    assert logged - passes.names
    assert logged <= primed


def test_a_completed_run_has_nothing_left_to_do(tmp_path):
    first = train(tmp_path, small())
    before, table = first.folder.read_result()["weights_sha256"], tables(first)
    again = train(tmp_path, small())
    assert again.folder.read_result()["weights_sha256"] == before
    assert tables(again) == table


def test_a_repeated_run_is_the_same_and_another_seed_is_not(tmp_path):
    digests = [
        train(tmp_path / name, small(*HARD, f"seed={seed}")).folder.read_result()["weights_sha256"]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_what_does_not_belong_to_the_training_does_not_change_it(tmp_path):
    """Logging, evaluation and checkpoints draw no random numbers."""
    variants = [(), ("trainer.log_every=3",), ("trainer.evaluate_every=0",), ("checkpoint.every=2",)]
    digests = {
        train(tmp_path / str(i), small(*HARD, *options)).folder.read_result()["weights_sha256"]
        for i, options in enumerate(variants)
    }
    assert len(digests) == 1


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    train(tmp_path, small("trainer.epochs=1"))
    state = CheckpointStore(RunFolder(tmp_path), every=0, keep=0).last()
    run = attempt(tmp_path, small("model.width=3"), state=state)
    with pytest.raises(ConfigurationError, match="belongs to another model"):
        run.train(seed=1, state=state)
    run.trainer.reporter.recorder.close()


def test_evaluate_only_repeats_the_run_s_own_numbers(tmp_path):
    run = train(tmp_path / "run", small())
    load = f"checkpoint.load={run.folder.last_checkpoint}"
    evaluation = attempt(tmp_path / "evaluation", small("trainer.evaluate_only=true", load))
    evaluation.evaluate()
    result, expected = evaluation.folder.read_result(), run.folder.read_result()
    assert result["weights_sha256"] == expected["weights_sha256"]
    for name in ("val_loss", "val_acc1", "val_acc5", "val_samples"):
        assert result["metrics"][name] == expected["metrics"][name]
    assert result["objective"] == expected["metrics"]["val_acc1"]
    assert (result["status"], result["steps"]) == ("completed", 0)
    assert not evaluation.folder.steps.exists()  # there is nothing to write


def test_checkpoint_load_starts_anew_from_given_weights(tmp_path):
    first = train(tmp_path / "first", small())
    second = train(tmp_path / "second", small(f"checkpoint.load={first.folder.last_checkpoint}", "trainer.max_steps=1"))
    assert second.folder.read_result()["steps"] == 1
    loss = float(rows(second.folder.steps)[0]["loss"])
    assert loss < 0.9 < float(rows(first.folder.steps)[0]["loss"])


def test_result_json_knows_what_a_rank_can_know(tmp_path):
    run = train(tmp_path, small())
    result = run.folder.read_result()
    assert result["samples_seen"] == 320
    assert result["metrics"]["val_samples"] == 37
    assert len(result["peak_memory_mb"]) == 1
    assert result["train_seconds"] > 0
    assert result["samples_per_second"] > 0
    with open(run.folder.epochs, newline="") as file:
        seconds = [float(row["train_seconds"]) for row in csv.DictReader(file)]
    assert result["train_seconds"] == pytest.approx(sum(seconds))


def test_peaks_of_memory_are_those_after_the_first_passes(tmp_path, monkeypatch, capsys):
    done = []
    monkeypatch.setattr(Update, "prime", lambda *_, **__: done.append("passes"))
    monkeypatch.setattr(session, "forget_peaks", lambda devices: done.append(f"forgotten of {len(devices)}"))
    monkeypatch.setattr(session, "reserved_memory_mb", lambda device: 512.0)
    run = train(tmp_path, small("trainer.max_steps=1"))
    assert done == ["passes", "forgotten of 1"]
    assert run.folder.read_result()["reserved_memory_mb"] == [512.0]
    assert "MB peak per device; 512 reserved" in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_the_table_at_the_end_says_all_that_was_skipped(tmp_path, capsys):
    unreadable = ("data=custom", "data._target_=tests.zoo.Unreadable", "+data.nan=7", "data.on_corrupt=skip")
    run = train(tmp_path, small(*unreadable, "trainer.on_nan=skip", "data.num_workers=0"))
    result = run.folder.read_result()
    assert result["corrupt_samples"] == 4  # of training and of evaluation, in each of two epochs
    assert result["skipped_steps"] == 2  # one in each epoch
    out = re.sub(" +", " ", capsys.readouterr().out)
    assert "skipped │ 4 reads of unreadable samples, 2 updates" in out
    assert "unreadable │ three.jpg" in out
    assert result["corrupt_files"] == ["three.jpg"]


@pytest.mark.slow
@pytest.mark.tail
def test_compiling_keeps_the_weights_names_and_nearly_the_results(tmp_path):
    shared = ("trainer.max_steps=3", "trainer.evaluate_every=0")
    plain = train(tmp_path / "plain", small(*shared))
    compiled = train(tmp_path / "compiled", small(*shared, "trainer.compile=default"))
    states = [torch.load(run.folder.last_checkpoint, weights_only=True)["model"] for run in (plain, compiled)]
    assert list(states[0]) == list(states[1])
    for name, weight in states[0].items():
        torch.testing.assert_close(states[1][name], weight, rtol=0, atol=1e-5)


def test_a_run_that_is_stopped_while_it_evaluates_goes_on_with_the_evaluation(tmp_path):
    config = small("data.val_samples=480", "data.batch_size=8")  # 60 batches; it listens after 50
    whole = train(tmp_path / "whole", config)
    run = attempt(tmp_path / "stopped", config)
    heartbeat, evaluate = run.trainer.heartbeat, run.trainer.evaluate

    def stop_meanwhile():
        heartbeat.stop_signal = signal.SIGINT
        return evaluate()

    run.trainer.evaluate = stop_meanwhile
    run.train(seed=1, state=None)
    result = run.folder.read_result()
    assert (result["status"], result["epochs"], result["steps"]) == ("interrupted", 0, 20)
    assert rows(run.folder.epochs) == []
    resumed = train(tmp_path / "stopped", config)
    assert tables(resumed) == tables(whole)
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]


def test_a_log_on_a_full_disk_does_not_replace_the_error_that_ended_the_run(tmp_path, capsys):
    def fail() -> None:
        with rank_process.logging_to(tmp_path / "rank_0.log", apart=False), open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), logging.getLogger().handlers[-1].stream.fileno())  # type: ignore[attr-defined]
            logging.getLogger("manyheads").warning("what cannot be written")
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()
    assert "Logging error" not in capsys.readouterr().err
