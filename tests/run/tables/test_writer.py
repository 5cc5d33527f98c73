"""CSV tables and TensorBoard's files, a resume included."""

import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from manyheads.runner.logger.logger import LoggedRun
from manyheads.runner.logger.rank.tensorboard import TensorBoard
from manyheads.runner.loop import log_windows as intervals
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables import writer as recorder
from manyheads.runner.run.tables.columns import TRAINING
from manyheads.runner.run.tables.writer import CSVTable, CSVWriter, NullWriter
from tests.in_process import rows, small, train
from tests.loop.test_session import killed_after


def with_board(folder: RunFolder) -> CSVWriter:
    board = TensorBoard()
    board.start(LoggedRun(folder.path, {}, 0, []))
    return CSVWriter(folder, train=[], val=[], position={}, loggers=[board])


STEPS = "epoch,step,samples,loss,lr,grad_norm,samples_per_second,data_fraction,time"
EPOCHS = (
    "epoch,step,started,train_seconds,train_loss,train_acc1,train_acc5,val_seconds,val_loss,val_acc1,val_acc5,"
    "val_samples,samples_per_second,peak_memory_mb"
)


def board(folder: RunFolder) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder.tensorboard))
    accumulator.Reload()
    return accumulator


def steps(folder: RunFolder, tag: str) -> list[int]:
    return [event.step for event in board(folder).Scalars(tag)]


def test_the_columns_are_those_promised(tmp_path):
    folder = train(tmp_path, small()).folder
    assert folder.steps.read_text().splitlines()[0].startswith(STEPS)
    assert folder.epochs.read_text().splitlines()[0].startswith(EPOCHS)
    assert len(rows(folder.steps)) == 6
    assert len(rows(folder.epochs)) == 2
    for row in rows(folder.steps) + rows(folder.epochs):
        assert all(math.isfinite(float(value)) for value in row.values())
    assert all(0 <= float(row["data_fraction"]) <= 1 for row in rows(folder.steps))


def test_tensorboard_loads_what_the_tables_say(tmp_path):
    folder = train(tmp_path, small()).folder
    loaded = board(folder)
    assert set(loaded.Tags()["scalars"]) == {
        *(f"train/{name}" for name in ("loss", "lr", "grad_norm", "samples_per_second")),
        *(f"epoch/{split}_{name}" for split in ("train", "val") for name in ("loss", "acc1", "acc5")),
        *("memory/peak_mb", *(f"seconds/{part}" for part in (*TRAINING, "checkpoint"))),
        *("best/objective", "best/epoch", *(f"best/val_{name}" for name in ("loss", "acc1", "acc5"))),
    }
    for prefix, path in (("train", folder.steps), ("epoch", folder.epochs)):
        for tag in loaded.Tags()["scalars"]:
            if tag.startswith(prefix):
                expected = [(int(row["step"]), float(row[tag.partition("/")[2]])) for row in rows(path)]
                events = [(event.step, event.value) for event in loaded.Scalars(tag)]
                assert [step for step, _ in events] == [step for step, _ in expected]
                assert [value for _, value in events] == pytest.approx([value for _, value in expected], rel=1e-6)


def test_after_a_resume_tensorboard_shows_each_step_once(tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "MOST", 1)  # each row as soon as it can be
    config = small("checkpoint.every=13")
    run = killed_after(tmp_path, config, 25)
    assert steps(run.folder, "train/loss") == [8, 16, 20, 24]
    train(tmp_path, config)
    assert steps(run.folder, "train/loss") == [8, 16, 20, 24, 32, 40]
    assert steps(run.folder, "epoch/val_loss") == [20, 40]


def test_a_table_goes_on_where_the_checkpoint_left_it(tmp_path):
    path = tmp_path / "table.csv"
    first = CSVTable(path, ("a", "b"), 0)
    first.append({"a": 1, "b": 0.1})
    size = first.size()
    first.append({"a": 2, "b": None})
    first.close()
    assert path.read_text() == "a,b\n1,0.1\n2,\n"
    path.write_text(path.read_text() + "3,0.")  # torn by a crash
    second = CSVTable(path, ("a", "b"), size)
    second.append({"a": 2, "b": 1 / 3})
    second.close()
    assert path.read_text() == f"a,b\n1,0.1\n2,{1 / 3!r}\n"
    CSVTable(path, ("a", "b"), 0).close()
    assert path.read_text() == "a,b\n"


def test_a_table_that_an_earlier_version_began_keeps_its_columns(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a\n1\n")
    table = CSVTable(path, ("a", "b"), path.stat().st_size)
    table.append({"a": 2, "b": 3})
    table.close()
    assert path.read_text() == "a\n1\n2\n"


@pytest.mark.parametrize("pause", [0.0, 1e9])
def test_rows_are_in_the_file_soon(tmp_path, monkeypatch, pause):
    """Each at once, where they come slowly; together, where they come quickly."""
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", pause)
    folder = RunFolder(tmp_path)
    files = with_board(folder)
    row = dict.fromkeys(recorder.STEP_COLUMNS, 1.0)
    files.step({**row, "step": 1})
    files.step({**row, "step": 2})
    expected = [1, 2] if pause == 0 else [1]
    assert [int(row["step"]) for row in rows(folder.steps)] == steps(folder, "train/loss") == expected
    files.close()
    assert [int(row["step"]) for row in rows(folder.steps)] == steps(folder, "train/loss") == [1, 2]


def test_numbers_come_back_exactly(tmp_path):
    values = [0.1, 1 / 3, 1e-300, float("nan"), 2.0**60]
    table = CSVTable(tmp_path / "table.csv", ("a",), 0)
    for value in values:
        table.append({"a": value})
    table.close()
    assert [float(row["a"]) for row in rows(tmp_path / "table.csv")] == pytest.approx(values, rel=0, nan_ok=True)


def test_a_position_is_what_is_on_the_disk(tmp_path):
    folder = RunFolder(tmp_path)
    files = with_board(folder)
    row = dict.fromkeys(recorder.STEP_COLUMNS, 1.0)
    files.step({**row, "step": 1})
    files.taken(dict.fromkeys(recorder.TAKEN, 1))
    tables = {"steps": folder.steps, "epochs": folder.epochs, "samples": folder.samples}
    assert files.position() == {name: table.stat().st_size for name, table in tables.items()}
    files.close()


def test_the_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    silent = NullWriter()
    silent.step({})
    silent.epoch({})
    silent.taken({})
    silent.skipped({})
    assert silent.position() == {}
    silent.close()
    assert not list(tmp_path.iterdir())
