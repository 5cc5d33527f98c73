import os
import sys
from pathlib import Path

import pytest

from manyheads.runner.data.imagefolder.listing import Paths, scan

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
    listing = scan(folder / name for name in classes)
    return Paths(folder, classes, listing, listing.targets())


def test_paths_are_those_of_the_files_in_their_order(folder):
    classes = ["none", "one", "two"]
    found = paths(folder, classes)
    expected = [
        str(path)
        for name in classes
        for path in sorted((folder / name).iterdir(), key=lambda path: path.name)
        if path.suffix != ".txt"
    ]
    assert list(found) == expected
    assert all(Path(path).exists() for path in found)
    assert list(found.targets) == [1] * 6 + [2] * 7
    assert list(found.listing.counts) == [0, 6, 7]


def test_it_is_a_sequence(folder):
    found = paths(folder, ["one", "two"])
    assert len(found) == 13
    assert found[-1] == found[12] == list(found)[-1]
    assert found[3:9:2] == list(found)[3:9:2]
    assert found[2] in found
    for index in (13, -14):
        with pytest.raises(IndexError):
            found[index]


def test_no_object_is_kept_for_a_file(tmp_path):
    for number in range(500):
        (tmp_path / f"{number:010d}.jpg").touch()
    listing = scan([tmp_path])
    assert sum(map(sys.getsizeof, (listing.names, listing.ends, listing.counts, listing.targets()))) < 500 * 28 + 500
