"""Predictions, worst samples and the confusion matrix of an evaluation, on request."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.callbacks.rank.confusion_matrix import ConfusionMatrix, drawn
from manyheads.runner.callbacks.rank.sample_rows import in_windows, write_table
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train
from tests.scikit_learn import reference

ALL = ("callbacks=[predictions,worst_samples,confusion_matrix]", "callbacks.worst_samples.count=5")


def table(folder, name):
    with open(folder.path / name, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone"), small(*ALL, "precision=fp64", "trainer.epochs=1"))


def evaluated(run):
    with torch.no_grad():
        batches = list(run.trainer.evaluation.loader.epoch(0))
        logits = torch.cat([run.update.model.eval()(batch.inputs) for batch in batches])
    return logits, torch.cat([batch.content[1] for batch in batches])


def test_every_sample_has_one_row_of_what_the_model_made_of_it(alone):
    logits, targets = evaluated(alone)
    rows = table(alone.folder, "predictions.csv")
    assert [int(row["id"]) for row in rows] == list(range(37))
    assert [int(row["target"]) for row in rows] == targets.tolist()
    assert [int(row["prediction"]) for row in rows] == logits.argmax(1).tolist()
    assert [float(row["probability"]) for row in rows] == pytest.approx(logits.softmax(1).amax(1).tolist(), rel=1e-8)


def test_the_worst_come_first(alone):
    losses = {int(row["id"]): float(row["loss"]) for row in table(alone.folder, "predictions.csv")}
    worst = table(alone.folder, "worst_samples.csv")
    assert [int(row["id"]) for row in worst] == sorted(losses, key=lambda number: -losses[number])[:5]


def test_the_confusion_matrix_is_that_of_scikit_learn(alone):
    logits, targets = evaluated(alone)
    rows = list(csv.reader((alone.folder.path / "confusion_matrix.csv").read_text().splitlines()))
    assert (
        np.array(rows[1:])[:, 1:].astype(int).tolist()
        == reference("confusion_matrix")(targets, logits.argmax(1)).tolist()
    )


def test_it_is_drawn_where_the_run_is_recorded(alone):
    with Image.open(alone.folder.path / "pictures" / "confusion_matrix.png") as picture:
        assert min(picture.size) >= 300
    events = b"".join(path.read_bytes() for path in (alone.folder.path / "tensorboard").iterdir())
    assert b"confusion_matrix" in events


@pytest.mark.parametrize("classes", [2, 21, 100])
def test_of_many_classes_it_stays_a_picture(classes):
    matrix, names = np.eye(classes).tolist(), [f"class {number}" for number in range(classes)]
    assert max(Image.open(io.BytesIO(drawn(matrix, names))).size) <= 1200


def test_names_that_anybody_may_have_chosen_steer_no_terminal(tmp_path):
    samples = SimpleNamespace(
        classes=["\x1b]0;owned\x07", "=HYPERLINK()", "$\\frac$"], paths=["a\r", "\udcff", "\x9b2J"]
    )
    write_table(tmp_path / "a.csv", ["target"], [(np.arange(3), np.arange(3.0)[:, None])], samples)
    with open(tmp_path / "a.csv", newline="", errors="surrogateescape") as file:
        assert list(csv.reader(file)) == [
            ["id", "target", "path"],
            ["0", "\\x1b]0;owned\\x07", "a\\r"],
            ["1", "'=HYPERLINK()", "\udcff"],
            ["2", "$\\frac$", "\\x9b2J"],
        ]
    matrix, pictures = ConfusionMatrix(), []
    matrix._sum = torch.eye(3, dtype=torch.int64)
    matrix.run = SimpleNamespace(
        gather=lambda own: [own], rank=0, folder=tmp_path, picture=lambda *each: pictures.append(each)
    )
    matrix._step = 1
    matrix.on_evaluation(
        "val", samples
    )  # Matplotlib would warn of characters without glyphs, and fail to parse formulas
    assert pictures
    (path,) = tmp_path.glob("confusion_matrix*.csv")
    assert "\x1b" not in path.read_text()


@pytest.mark.processes
def test_ranks_write_the_same_tables(alone, tmp_path):
    folder = RunFolder(tmp_path)
    ranks = ("parallel=ddp", "launcher.nproc_per_node=2")
    folder.write_config(small(*ALL, *ranks, "precision=fp64", "trainer.epochs=1"))
    launch(prepare(folder))
    for name in ("predictions.csv", "worst_samples.csv", "confusion_matrix.csv"):
        for ours, theirs in zip(table(folder, name), table(alone.folder, name), strict=True):
            assert {key: float(value) for key, value in ours.items()} == pytest.approx(
                {key: float(value) for key, value in theirs.items()}, rel=1e-6
            )


def test_many_samples_come_some_at_a_time(monkeypatch):
    monkeypatch.setattr("manyheads.runner.callbacks.rank.sample_rows.WINDOW", 4)
    ids = [9, 0, 3, 5, 1]
    found = list(in_windows(lambda value: [value], ids, np.array(ids)[:, None] * 10.0))
    assert [part.tolist() for part, _ in found] == [[0, 1, 3], [5], [9]]
    assert [rows[:, 0].tolist() for _, rows in found] == [[0, 10, 30], [50], [90]]


def test_of_values_and_of_several_labels(tmp_path):
    more = ("data.num_workers=0", "data.batch_size=18", "data=custom", "model=custom")
    of = {"regression": "Tables", "multilabel": "Labels"}
    for task, data in of.items():
        model = ("model._target_=tests.task.zoo.Linear", f"task={task}", f"data._target_=tests.task.zoo.{data}")
        run = train(tmp_path / task, small("callbacks=[predictions]", *more, *model, "precision=fp64"))
        assert len(table(run.folder, "predictions.csv")) == 29


@pytest.mark.parametrize("fraction", [0.25, "null"])
def test_a_row_names_the_file_of_its_sample(tmp_path, fraction):
    """Also if validation samples are drawn from those of a class of one's own, which has the paths of all."""
    data = ("data=custom", "data._target_=tests.data.own_sets.Filed", f"data.val_fraction={fraction}")
    model = ("model=custom", "model._target_=torch.nn.Linear", "+model.in_features=8", "+model.out_features=2")
    model += ("trainer.epochs=1", "data.num_workers=0")
    names = "callbacks=[predictions,worst_samples]"
    run = train(tmp_path, small(names, *data, *model))
    for name in ("predictions.csv", "worst_samples.csv"):
        rows = table(run.folder, name)
        assert rows
        assert all(row["path"].endswith(f"-{row['target']}.png") for row in rows)
        assert len({row["path"] for row in rows}) == len(rows)
        assert rows[0]["path"].startswith("val/" if fraction == "null" else "train/")


def test_of_parts_of_samples_there_is_no_row(tmp_path):
    with pytest.raises(ConfigurationError, match="scores 1024 parts of each sample"):
        train(
            tmp_path,
            small(
                "callbacks=[predictions]",
                "task=segmentation",
                "data=shapes",
                "model=custom",
                "model._target_=tests.task.zoo.Segmenter",
                "data.train_samples=64",
                "trainer.epochs=1",
            ),
        )
