"""``watch``: what is shown of runs and sweeps in progress, and that it ends with them."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from manyheads.runner.commands import watch as watching
from manyheads.runner.commands.watch import watch
from manyheads.runner.commands.watch.run_view import COLUMNS, Now
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.load_run import load_run
from manyheads.runner.run.run_folder import RunFolder
from tests.commands.run_folders import write_run
from tests.sweeps import WrittenSweep

STEPS = "epoch,step,samples,loss,lr,grad_norm,samples_per_second,data_fraction,time\n"


def running(path: Path, *, epochs: int = 0, rows: int = 4, **trainer: int) -> RunFolder:
    """A run of ten updates an epoch and 0.5 s an update, after this many rows, one for each two updates."""
    folder = write_run(path, status=None, trainer={"epochs": 3, **trainer})
    lines = [f"{row // 5 + 1},{2 * row + 2},1,0.5,0.1,1,128,0,{1000 + row}\n" for row in range(rows)]
    folder.steps.write_text(STEPS + "".join(lines))
    folder.epochs.write_text(
        "epoch,step,val_seconds,val_loss,val_f1,val_samples\n"
        + "".join(f"{n},{10 * n},1,0.4,{0.7 + n / 10},9\n" for n in range(1, epochs + 1))
    )
    return folder


@pytest.mark.parametrize(
    ("epochs", "rows", "limit", "expected"),
    [
        (0, 4, {}, "epoch 1/3  step 8  loss 0.5000  500 ms/step  128 samples/s"),
        (0, 4, {"max_steps": 20}, "epoch 1  step 8/20  loss 0.5000  500 ms/step  128 samples/s  6 s left"),
        (1, 6, {}, "epoch 2/3  step 12/30  loss 0.5000  val_f1 0.8  500 ms/step  128 samples/s  9 s left"),
        (
            1,
            6,
            {"max_steps": 15},
            "epoch 2/2  step 12/15  loss 0.5000  val_f1 0.8  500 ms/step  128 samples/s  2 s left",
        ),
        (0, 0, {}, "epoch 0/3  step 0"),
        (0, 1, {}, "epoch 1/3  step 2  loss 0.5000  128 samples/s"),
    ],
)
def test_how_far_a_run_is(tmp_path, epochs, rows, limit, expected):
    folder = running(tmp_path / "run", epochs=epochs, rows=rows, **limit)
    assert "  ".join(Now.of(load_run(folder.path, steps=COLUMNS)).words(is_running=True)) == expected


def test_without_a_terminal_it_is_shown_once(finished_run, capsys):
    watch(str(finished_run.path))
    out = capsys.readouterr().out
    assert "completed" in out
    assert "training loss, by step" in out
    assert "val_acc1, by epoch" in out


def test_a_run_that_ends_ends_it(tmp_path, monkeypatch, capsys):
    folder = running(tmp_path / "run", epochs=1, rows=6)
    looks: list[str] = []
    monkeypatch.setattr(watching, "Console", lambda **more: Console(force_terminal=True, width=100, **more))
    with folder.locked():
        monkeypatch.setattr(watching.time, "sleep", lambda _: looks.append("") or _end_at(3, looks, folder))
        watch(str(folder.path))
    out = capsys.readouterr().out
    assert "running" in out
    assert "the disk is gone" in out
    assert len(looks) == 4


def _end_at(count: int, looks: list[str], folder: RunFolder) -> None:
    if len(looks) == count:
        error = {"type": "OSError", "message": "the disk is gone\nand more"}
        folder.result.write_text(json.dumps({"status": "failed", "error": error}))


def test_a_killed_run_says_how_it_is_resumed(tmp_path, capsys):
    watch(str(running(tmp_path / "run").path))
    out = " ".join(capsys.readouterr().out.split())
    assert "interrupted" in out
    assert "resume it: python -m runner resume" in out
    assert " left" not in out


def test_a_sweep(tmp_path, finished_run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    sweep = WrittenSweep(tmp_path / "sweep", finished_run)
    sweep.job("optimizer.lr=0.1", "seed=1")
    sweep.job("name='[red]a[/]'", "seed=1", state="failed")
    for _ in range(30):
        sweep.job("optimizer.lr=0.3", "seed=1", state="pending")
    watch(str(sweep.folder))
    out = capsys.readouterr().out
    assert "32 jobs: 30 pending, 1 completed, 1 failed" in " ".join(out.split())  # after a path of any length
    assert "... and 12 more jobs" in out
    assert "seed=1" not in out
    assert "name='[red]a[/]'" in out
    assert "val_acc1, by epoch" in out


def test_what_there_is_to_watch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="nothing runs below outputs/"):
        watch(None)
    running(tmp_path / "outputs" / "old")
    folder = running(tmp_path / "outputs" / "new")
    with pytest.raises(ConfigurationError, match="nothing runs below outputs/"):
        watch(None)
    with folder.locked():
        watch(None)
    assert "outputs/new" in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match="is not a folder"):
        watch("absent")
    (tmp_path / "planned").mkdir()
    (tmp_path / "planned" / "multirun.yaml").touch()
    with pytest.raises(ConfigurationError, match="has no ledger.jsonl yet"):
        watch("planned")
