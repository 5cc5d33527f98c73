"""``python -m runner predict``: a row for each image, whatever the others are like."""

import csv
import os
import shutil

import numpy as np
import pytest
from PIL import Image

import manyheads


def table(path) -> list[dict[str, str]]:
    with open(path, newline="", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def test_every_image_below_a_folder_has_its_row(command, tmp_path, photo_run, photos):
    done = command("predict", photo_run.folder.path, photos / "val", "--out", "found.csv")
    assert done.code == 0, done.err
    assert "found.csv: 9 files, with the best weights" in done.out
    rows = table(tmp_path / "found.csv")
    paths = sorted(map(str, (photos / "val").glob("*/*.jpg")))
    assert [row["file"] for row in rows] == paths
    expected = manyheads.load(photo_run.folder.path).predict(paths)
    assert [row["class"] for row in rows] == [each.label for each in expected]
    for row, each in zip(rows, expected, strict=True):
        assert float(row["probability"]) == pytest.approx(each.probability, abs=1e-6)
        assert (row["class_3"], len(row)) == (each.top[2][0], 7)


def test_a_file_that_cannot_be_read_is_named_and_its_row_left_empty(command, tmp_path, photo_run, photos):
    folder = tmp_path / "mixed"
    folder.mkdir()
    shutil.copy(photos / "val" / "cat" / "0.jpg", folder / "a.jpg")
    (folder / "b.jpg").write_text("no photo")
    (folder / "notes.txt").write_text("no image")
    shutil.copy(photos / "val" / "cat" / "0.jpg", folder / "c.jpg")
    done = command("predict", photo_run.folder.path, folder)
    assert done.code == 0, done.err
    assert f"warning: {folder / 'b.jpg'} cannot be read: " in done.err
    assert "warning: skipped 1 file (1 .txt). Images end in .jpg, " in done.err
    assert "3 files, of which 1 could not be read" in done.out
    first, second, third = table(tmp_path / "predictions.csv")
    assert {*second.values()} == {str(folder / "b.jpg"), ""}
    assert {**first, "file": ""} == {**third, "file": ""}
    assert first["class"]


def test_names_are_text_whatever_they_are(command, tmp_path, photo_run):
    """No formulas, and bytes that are no UTF-8."""
    image = Image.fromarray(np.zeros((30, 30, 3), np.uint8))
    for name in (b"=1+1.png", b"\xff.png", b"\x1b[2J.png"):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
            image.save(file, format="PNG")
    assert command("predict", photo_run.folder.path, "=1+1.png", os.fsdecode(b"\xff.png"), "\x1b[2J.png").code == 0
    assert [row["file"] for row in table(tmp_path / "predictions.csv")] == ["'=1+1.png", "\udcff.png", "\\x1b[2J.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist. Name image files, or folders of them"),
        (["empty"], "there are no images in empty"),
        (["trust=[x]"], "there are no images to predict"),
        (["image.png", "--out", "no/such/folder.csv"], "the folder no/such does not exist"),
        (["image.png", "--weights", "worst"], "worst: there are no such weights"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_no_table(command, tmp_path, photo_run, arguments, message):
    (tmp_path / "empty").mkdir()
    Image.fromarray(np.zeros((30, 30, 3), np.uint8)).save(tmp_path / "image.png")
    done = command("predict", photo_run.folder.path, *arguments)
    assert done.code == 2
    assert message in done.err
    assert not list(tmp_path.rglob("*.csv"))
