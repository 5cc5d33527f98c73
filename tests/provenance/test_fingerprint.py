import hashlib
import os

import pytest

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.data.data_option import DataOption
from manyheads.runner.option.declared import declared
from manyheads.runner.provenance.fingerprint import _taken, fingerprint

FOLDER = "manyheads.runner.data.imagefolder.ImageFolder"


@pytest.fixture(autouse=True)
def fresh():
    _taken.cache_clear()


def of(root, kind="sizes", target=FOLDER):
    _taken.cache_clear()
    section = {"_target_": target, "root": str(root), "fingerprint": kind}
    return fingerprint(declared("data", section | ({"_option_": f"{FOLDER}Option"} if target == FOLDER else {})))


@pytest.fixture
def photos(tmp_path):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "1.jpg").write_bytes(b"12345")
    return tmp_path


@pytest.mark.parametrize("option", options("data"))
def test_every_option_says_what_it_reads(option, tmp_path):
    section = {**read_option("data", option), "root": str(tmp_path)}
    section["_target_"] = section["_target_"].replace("???", "my_package.Photos")
    assert isinstance(declared("data", section), DataOption)
    found = fingerprint(declared("data", section))
    assert (found is not None) == (option in ("diabetes", "digits", "stdlib_text"))
    if found:
        assert found["files"] == 1 or option != "digits"
        assert found["bytes"] > 8_000


def test_files_and_bytes_are_counted(photos):
    found = of(photos)
    assert (found["files"], found["bytes"], found["contents"]) == (4, 20, None)


@pytest.mark.parametrize("kind", ["sizes", "contents"])
def test_the_same_data_elsewhere_is_the_same(photos, tmp_path_factory, kind):
    before = of(photos, kind)
    other = tmp_path_factory.mktemp("other") / "moved"
    os.rename(photos, other)
    (other / "train" / ".hidden").write_text("of a file manager")
    assert of(other, kind) == before


@pytest.mark.parametrize(
    ("change", "seen_by"),
    [
        (lambda root: (root / "train/cat/1.jpg").rename(root / "train/cat/2.jpg"), {"sizes", "contents", "times"}),
        (lambda root: (root / "train/cat/1.jpg").rename(root / "train/dog/2.jpg"), {"sizes", "contents", "times"}),
        (lambda root: (root / "val/cat/1.jpg").write_bytes(b"123456"), {"sizes", "contents", "times"}),
        (lambda root: (root / "val/cat/1.jpg").unlink(), {"sizes", "contents", "times"}),
        (lambda root: (root / "val/cat/1.jpg").write_bytes(b"54321"), {"contents", "times"}),
    ],
)
def test_a_change_is_noticed(photos, change, seen_by):
    before = of(photos, "contents")
    change(photos)
    after = of(photos, "contents")
    assert {kind for kind in ("sizes", "contents", "times") if after[kind] != before[kind]} == seen_by


def test_not_where_it_is_not_wanted(photos):
    assert of(photos, "none") is None


def test_a_class_of_the_users_own_is_known_by_its_root(photos):
    assert of(photos, target="my_package.Photos")["files"] == 4


def test_what_is_not_there_has_none(tmp_path):
    assert of(tmp_path / "nowhere") is None


def test_digests_stay_those_of_earlier_runs(tmp_path):
    """Over lines of names and sizes in the order of names, folders among files; contents behind each line."""
    files = {"train/a.jpg": b"1", "train/b/c/1.jpg": b"22", "train/b/d.jpg": b"", "train/z.txt": b"333"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "val").write_bytes(b"4444")
    lines = [(f"{name}\0{len(content)}\n".encode(), content) for name, content in [*files.items(), ("val", b"4444")]]
    found = of(tmp_path, "contents")
    assert (found["files"], found["bytes"]) == (5, 10)
    assert found["sizes"] == hashlib.sha256(b"".join(line for line, _ in lines)).hexdigest()
    assert found["contents"] == hashlib.sha256(b"".join(line + content for line, content in lines)).hexdigest()


@pytest.mark.parametrize("linked", ["train", "train/cat"])
def test_what_links_point_to_is_part_of_it(photos, tmp_path_factory, linked):
    before, other = of(photos, "contents"), tmp_path_factory.mktemp("other") / "moved"
    (photos / linked).rename(other)
    (photos / linked).symlink_to(other)
    assert of(photos, "contents") == before
    next(other.rglob("*.jpg")).write_bytes(b"54321")
    after = of(photos, "contents")
    assert (after["sizes"], after["contents"] != before["contents"]) == (before["sizes"], True)


@pytest.mark.parametrize("target", ["link", ".", "..", "missing"])
def test_a_link_that_holds_nothing_new_hides_no_change(photos, target):
    (photos / "train" / "cat" / "link").symlink_to(target)
    before = of(photos, "contents")
    (photos / "train" / "cat" / "1.jpg").write_bytes(b"54321")
    after = of(photos, "contents")
    assert (after["sizes"], after["contents"] != before["contents"]) == (before["sizes"], True)
