"""An index of class folders that is kept: it must never be believed when it is not true any more."""

import itertools
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from manyheads.runner.data import imagefolder_index
from manyheads.runner.data.imagefolder_listing import ImageListing
from tests.in_process import config

CLASSES = ["cat", "dog"]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def eager(monkeypatch) -> None:
    """Few files are worth an index, and no change is too recent."""
    monkeypatch.setattr(imagefolder_index, "FEWEST_FILES", 1)
    monkeypatch.setattr(imagefolder_index, "FEWEST_IN_A_CLASS", 0)
    monkeypatch.setattr(imagefolder_index, "SETTLED", -(10**18))


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "data"
    for name in (*CLASSES, "other"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            (root / name / f"{name}_{number}.jpg").touch()
    (root / "cat" / "inner").mkdir()
    (root / "cat" / "inner" / "cat_3.jpg").touch()
    tick(tmp_path)
    return root


def tick(scratch: Path) -> None:
    """Wait until the file system's clock has moved on, some milliseconds."""
    path = scratch / "tick"
    path.touch()
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        time.sleep(0.001)
        path.touch()


def names(listing: ImageListing) -> list[str]:
    ends = [0, *listing.ends]
    return [os.fsdecode(listing.names[start:end]) for start, end in itertools.pairwise(ends)]


def files(folder: Path, classes: list[str]) -> list[str]:
    """The images in and below these classes' folders, in a folder the files first."""
    below = ((folder / each, sorted(os.walk(folder / each))) for each in classes)
    return [os.path.relpath(f"{at}/{name}", top) for top, each in below for at, _, own in each for name in sorted(own)]


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


@pytest.fixture
def no_scan(monkeypatch):
    """From when it is called on nothing may be scanned."""
    return lambda: monkeypatch.setattr(imagefolder_index, "scan", lambda _: pytest.fail("scanned again"))


def test_it_is_scanned_once(folder, cache, eager, no_scan):
    first = imagefolder_index.list_images(folder, CLASSES)
    assert names(first) == files(folder, CLASSES)
    assert (list(first.counts), first.inner) == ([4, 3], ("cat/inner/",))
    no_scan()
    assert imagefolder_index.list_images(folder, CLASSES) == first
    assert len(kept(cache)) == 1


def test_the_parents_check_leaves_it_for_the_ranks(photos, cache, eager, no_scan):
    config("data=imagefolder", f"data.root={photos}")
    no_scan()
    for split in ("train", "val"):
        imagefolder_index.list_images(photos / split, ["cat", "coffee", "person"])


def add(root: Path) -> None:
    (root / "cat" / "cat_9.jpg").touch()


def remove(root: Path) -> None:
    (root / "dog" / "dog_0.jpg").unlink()


def rename(root: Path) -> None:
    (root / "dog" / "dog_0.jpg").rename(root / "dog" / "dog_8.jpg")


def move(root: Path) -> None:
    (root / "dog" / "dog_0.jpg").rename(root / "cat" / "dog_0.jpg")


def put_another_folder_there(root: Path) -> None:
    (root / "dog").rename(root / "away")
    (root / "other").rename(root / "dog")


def add_below(root: Path) -> None:
    (root / "cat" / "inner" / "cat_9.jpg").touch()


def add_a_folder_below(root: Path) -> None:
    (root / "cat" / "inner" / "deeper").mkdir()
    (root / "cat" / "inner" / "deeper" / "cat_9.jpg").touch()


def move_a_folder_away(root: Path) -> None:
    (root / "cat" / "inner").rename(root / "other" / "inner")


def set_the_time_back(root: Path) -> None:
    before = (root / "cat").stat()
    add(root)
    os.utime(root / "cat", ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [add, remove, rename, move, put_another_folder_there, set_the_time_back]


@pytest.mark.parametrize("change", [*CHANGES, add_below, add_a_folder_below, move_a_folder_away])
def test_a_change_is_noticed(folder, cache, eager, change):
    imagefolder_index.list_images(folder, CLASSES)
    change(folder)
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)
    tick(folder.parent)
    add(folder)
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)


def test_other_classes_have_another_listing(folder, cache, eager):
    imagefolder_index.list_images(folder, CLASSES)
    assert names(imagefolder_index.list_images(folder, ["dog", "cat"])) == files(folder, ["dog", "cat"])
    assert names(imagefolder_index.list_images(folder, [*CLASSES, "other"])) == files(folder, [*CLASSES, "other"])


def test_what_has_changed_just_now_may_change_again_unnoticed_and_is_not_kept(folder, cache, eager, monkeypatch):
    monkeypatch.setattr(imagefolder_index, "SETTLED", 3600 * 10**9)
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)
    assert kept(cache) == []


def test_of_few_files_nothing_is_kept(folder, cache, monkeypatch):
    monkeypatch.setattr(imagefolder_index, "SETTLED", -(10**18))
    imagefolder_index.list_images(folder, CLASSES)
    assert kept(cache) == []
    monkeypatch.setattr(imagefolder_index, "FEWEST_FILES", 7)
    imagefolder_index.list_images(folder, CLASSES)  # seven in three folders
    assert kept(cache) == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "only a header": lambda path: path.write_bytes(path.read_bytes()[: imagefolder_index.HEADER.size]),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "a flipped bit": flip,
    "a size beyond all memory": lambda path: path.write_bytes(path.read_bytes()[:36] + b"\xff" * 60),
    "something else": lambda path: path.write_bytes(b"something else" * 99),
    "a folder in its place": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_ignored_and_written_again(folder, cache, eager, no_scan, damage):
    imagefolder_index.list_images(folder, CLASSES)
    (path,) = kept(cache)
    DAMAGES[damage](path)
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)
    if path.is_file():
        no_scan()
        imagefolder_index.list_images(folder, CLASSES)


def test_where_nothing_can_be_written_nothing_is_kept(folder, cache, eager, monkeypatch):
    cache.write_text("a file, where a folder should be")
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)
    monkeypatch.setattr(imagefolder_index, "cache_folder", lambda *_: None)  # a user without a home
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)


def test_times_of_a_mounted_bucket_are_not_believed(folder, cache, eager, tmp_path, monkeypatch):
    device = folder.stat().st_dev
    line = f"36 25 {os.major(device)}:{os.minor(device)} / /mnt rw shared:1 - fuse.s3fs bucket rw\n"
    (tmp_path / "mounts").write_text(line)
    monkeypatch.setattr(imagefolder_index, "MOUNTS", tmp_path / "mounts")
    assert names(imagefolder_index.list_images(folder, CLASSES)) == files(folder, CLASSES)
    assert kept(cache) == []
    (tmp_path / "mounts").write_text(line.replace("fuse.s3fs", "ext4"))
    imagefolder_index.list_images(folder, CLASSES)
    assert len(kept(cache)) == 1


def list_at_once(folder: Path, barrier, results) -> None:
    barrier.wait(30)
    results.put([names(imagefolder_index.list_images(folder, CLASSES)) for _ in range(20)])


def test_several_processes_at_once(folder, cache, eager):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    processes = [context.Process(target=list_at_once, args=(folder, barrier, results)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert found == [[files(folder, CLASSES)] * 20] * 4
    assert len(kept(cache)) == 1
