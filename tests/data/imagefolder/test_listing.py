import os
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image
from torchvision.datasets import DatasetFolder

from manyheads.runner.data.imagefolder import ImageFolder, class_names
from manyheads.runner.data.imagefolder_index import list_images
from manyheads.runner.data.imagefolder_listing import EXTENSIONS, Paths, scan
from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.samples import CorruptSample
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from tests.in_process import build_dataset

NAMES = ["b.jpg", "a.JPEG", "ä.png", "10.webp", "9.webp", "notes.txt", ".hidden.jpg"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Classes one and two of six images, none of three, and one of which the name is no UTF-8."""
    for name in ("one", "none", "two"):
        (tmp_path / name).mkdir()
    for name in NAMES:
        (tmp_path / "one" / name).touch()
        (tmp_path / "two" / f"2{name}").touch()
    (tmp_path / "two" / os.fsdecode(b"\xff.jpg")).touch()
    return tmp_path


def paths(folder: Path, classes: list[str]) -> Paths:
    listing = scan((folder / name for name in classes), root=folder)
    return Paths(folder, classes, listing, listing.targets())


def test_paths_are_those_of_the_files_in_their_order(folder):
    classes = ["none", "one", "two"]
    found = paths(folder, classes)
    expected = [
        str(path)
        for name in classes
        for path in sorted((folder / name).iterdir(), key=lambda path: path.name)
        if path.suffix != ".txt" and path.name[0] != "."
    ]
    assert list(found) == expected
    assert all(Path(path).exists() for path in found)
    assert list(found.targets) == [1] * 5 + [2] * 7
    assert list(found.listing.counts) == [0, 5, 7]
    assert found.listing.left_out == LeftOut(3, ("one/.hidden.jpg", "one/notes.txt", "two/2notes.txt"))


def test_folders_below_a_class_are_read_as_torchvision_does(tmp_path):
    for name in ("a/z.png", "a/inner/b.gif", "a/inner/deeper/c.jfif", "a/inner-2/d.JPE", "b/e.jpg", "b/x.png/f.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name, "PNG")
    (tmp_path / "b" / "around").symlink_to(tmp_path / "b")  # is read once
    found = paths(tmp_path, ["a", "b"])
    assert list(found) == [
        path for path, _ in DatasetFolder(str(tmp_path), len, (*EXTENSIONS,)).samples if "around" not in path
    ]
    assert list(found.listing.counts) == [4, 2]
    assert found.listing.left_out.count == 0


def test_hidden_entries_never_count(tmp_path):
    for name in (
        "cat/a.png",
        "cat/.ipynb_checkpoints/a.png",
        "cat/._b.png",
        "cat/.DS_Store",
        ".ipynb_checkpoints/c.png",
    ):
        (tmp_path / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / name).touch()
    classes = class_names(tmp_path / "train")
    listing = list_images(tmp_path / "train", classes)
    assert (classes, list(listing.counts)) == (["cat"], [1])
    assert listing.left_out == LeftOut(2, ("cat/._b.png", "cat/.ipynb_checkpoints"))


def test_it_is_a_sequence(folder):
    found = paths(folder, ["one", "two"])
    assert len(found) == 12
    assert found[-1] == found[11] == list(found)[-1]
    assert found[3:9:2] == list(found)[3:9:2]
    assert found[2] in found
    for index in (12, -13):
        with pytest.raises(IndexError):
            found[index]


def test_no_object_is_kept_for_a_file(tmp_path):
    for number in range(500):
        (tmp_path / f"{number:010d}.jpg").touch()
    listing = scan([tmp_path], root=tmp_path)
    assert sum(map(sys.getsizeof, (listing.names, listing.ends, listing.counts, listing.targets()))) < 500 * 28 + 500


class TestLinks:
    """A sent folder does not reach the user's own images; the user's own folder may be made of links."""

    @pytest.fixture
    def sent(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "a.png").touch()
        for split in ("train", "val"):
            (tmp_path / "sent" / split / "cat").mkdir(parents=True)
            (tmp_path / "sent" / split / "cat" / "b.png").touch()
        return tmp_path / "sent"

    @pytest.mark.parametrize("name", ["train/cat/a.png", "train/dog", "train/cat", "train"])
    def test_out_of_it_are_refused(self, sent, tmp_path, name):
        place = sent / name
        if place.exists():
            shutil.rmtree(place)
        target = {"train/cat/a.png": "mine/a.png", "train": "elsewhere"}.get(name, "mine")
        (tmp_path / "elsewhere" / "cat").mkdir(parents=True)
        place.symlink_to(tmp_path / target)
        with pytest.raises(ConfigurationError, match=r"points outside this folder.* trust"):
            list_images(sent / "train", class_names(sent / "train"))
        seal.trust(sent, None)
        assert list_images(sent / "train", class_names(sent / "train")) is not None

    def test_within_it_are_followed(self, sent):
        (sent / "val" / "cat" / "c.png").symlink_to(sent / "train" / "cat" / "b.png")
        assert len(list_images(sent / "val", class_names(sent / "val"))) == 2

    def test_to_itself_or_nothing_is_left_out(self, sent):
        for name, target in {"loop": "loop", "up": "..", "nothing": "missing"}.items():
            (sent / "train" / name).symlink_to(target)
            (sent / "train" / "cat" / name).symlink_to(target if name != "up" else ".")
        assert class_names(sent / "train") == ["cat", "up"]
        listing = list_images(sent / "train", ["cat"])
        assert listing.left_out.names == ("cat/loop", "cat/nothing")

    @pytest.mark.parametrize("name", ["train/cat/b.png", "train/cat", "train"])
    def test_what_becomes_a_link_after_it_was_listed_is_not_read(self, sent, tmp_path, name):
        mine = tmp_path / "mine"
        for file in ("a.png", "b.png"):
            Image.new("RGB", (8, 8)).save(mine / file)
        (mine / "cat").symlink_to(mine)
        data = ImageFolder(root=str(sent), image_size=8)
        samples = build_dataset(data, train=True)
        place = sent / name
        place.rename(tmp_path / "away")
        place.symlink_to(mine / "b.png" if name.endswith("png") else mine)
        with pytest.raises(CorruptSample, match="points outside this folder"):
            samples[0]
        with pytest.raises(ConfigurationError, match="points outside this folder"):
            scan([sent / "train" / "cat"], root=sent)
        seal.trust(sent, None)
        assert build_dataset(data, train=True)[0][1] == 0
