"""Continuing from another run's checkpoint: with more epochs, another batch, or nothing left to do."""

import pytest
import torch

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import TIMINGS, attempt, rows, small, train

ADAMW = ("optimizer=adamw", "optimizer.lr=0.01", "scheduler=constant")


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Two epochs of 20 updates, with a checkpoint in the middle of each."""
    path = tmp_path_factory.mktemp("short") / "run"
    train(path, small(*ADAMW, "checkpoint.every=10", "checkpoint.keep=9"))
    return RunFolder(path)


def go_on(path, source, *overrides):
    """What a rank does with checkpoint.resume."""
    config = small(*ADAMW, f"checkpoint.resume={source}", *overrides)
    state = CheckpointStore(RunFolder(path), every=0, keep=0).last(otherwise=str(source))
    run = attempt(path, config, state=state)
    run.train(seed=config["seed"], state=state)
    return run


def test_more_epochs_are_those_of_a_run_that_had_them_from_the_start(tmp_path, short):
    longer = go_on(tmp_path / "longer", short.last_checkpoint, "trainer.epochs=4")
    whole = train(tmp_path / "whole", small(*ADAMW, "trainer.epochs=4"))
    results = [run.folder.read_result() for run in (longer, whole)]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]
    assert [results[0][key] for key in ("epochs", "steps", "samples_seen")] == [4, 80, 640]
    table = rows(whole.folder.epochs, without=TIMINGS)
    assert rows(longer.folder.epochs, without=TIMINGS) == table[2:]


@pytest.mark.parametrize(("batch", "updates"), [(16, 10), (32, 5), (4, 40)])
def test_another_batch_goes_on_at_the_epoch_s_boundary(tmp_path, short, batch, updates):
    run = go_on(tmp_path / "run", short.last_checkpoint, f"data.batch_size={batch}", "trainer.epochs=3")
    result = run.folder.read_result()
    assert [result[key] for key in ("epochs", "steps", "samples_seen")] == [3, 3 * updates, 480]
    assert [(row["epoch"], row["step"]) for row in rows(run.folder.epochs)] == [("3", str(3 * updates))]


def test_with_nothing_left_to_train_it_is_refused(tmp_path, short):
    with pytest.raises(ConfigurationError, match=r"nothing is left.*trainer\.epochs=2.*Increase trainer\.epochs"):
        go_on(tmp_path / "a", short.last_checkpoint)
    with pytest.raises(ConfigurationError, match="nothing is left"):
        go_on(tmp_path / "b", short.last_checkpoint, "data.batch_size=32")
    with pytest.raises(ConfigurationError, match=r"nothing is left.*Increase trainer\.max_steps"):
        go_on(tmp_path / "c", short.last_checkpoint, "trainer.epochs=9", "trainer.max_steps=40")
    assert not RunFolder(tmp_path / "b").result.exists()


def test_in_the_middle_of_an_epoch_another_batch_is_refused(tmp_path, short):
    half = short.checkpoints / "step_00000010.pt"
    with pytest.raises(ConfigurationError, match=r"step_00000010\.pt is from the middle of epoch 1.*data\.batch_size"):
        go_on(tmp_path / "run", half, "data.batch_size=16", "trainer.epochs=3")
    go_on(tmp_path / "same", half, "trainer.epochs=3")


def test_more_steps_go_on_where_fewer_ended(tmp_path):
    cut = train(tmp_path / "cut", small(*ADAMW, "trainer.max_steps=27"))
    longer = go_on(tmp_path / "longer", cut.folder.last_checkpoint, "trainer.epochs=3")
    whole = train(tmp_path / "whole", small(*ADAMW, "trainer.epochs=3"))
    results = [run.folder.read_result() for run in (longer, whole)]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]
    assert [results[0][key] for key in ("epochs", "steps", "samples_seen")] == [3, 60, 480]


def test_the_best_of_both_runs_is_kept(tmp_path, short):
    """Trained to no good: the best is the first run's, and best.pt is there."""
    run = go_on(tmp_path / "run", short.last_checkpoint, "trainer.epochs=3", "optimizer.lr=9")
    best = run.folder.read_result()["best"]
    assert best == short.read_result()["best"]
    assert torch.load(run.folder.best_checkpoint, weights_only=True)["progress"]["epoch"] == best["epoch"]


def test_a_best_that_is_not_there_is_not_reported(tmp_path, short):
    alone = tmp_path / "alone.pt"
    alone.write_bytes(short.last_checkpoint.read_bytes())
    run = go_on(tmp_path / "run", alone, "trainer.epochs=3", "optimizer.lr=9")
    assert run.folder.read_result()["best"]["epoch"] == 3
    assert run.folder.best_checkpoint.exists()


def test_the_optimizer_s_settings_are_this_run_s(tmp_path, short):
    changed = ("optimizer.weight_decay=0.5", "trainer.epochs=3")
    run = go_on(tmp_path / "run", short.last_checkpoint, *changed)
    assert run.update.optimizer.param_groups[0]["weight_decay"] == 0.5
