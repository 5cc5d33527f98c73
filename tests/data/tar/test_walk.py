"""Members of archives as they are written by tarfile, webdataset and tar, and of archives that nobody should read."""

import os
import subprocess
import tarfile

import pytest

from manyheads.runner.data.tar.walk import Unsound, members
from tests.data.tar.conftest import samples, write_tar


def walked(path):
    with open(path, "rb") as file:
        return [
            (each.key, each.field, each.offset, each.size) for each in members(file.fileno(), os.stat(path).st_size)
        ]


def by_tarfile(path):
    """The same, by Python's reader."""
    with tarfile.open(path) as tar:
        parts = [(each, each.name.rpartition("/")) for each in tar if each.isreg()]
        split = [
            (each, folder + slash + last.partition(".")[0], last.partition(".")[2])
            for each, (folder, slash, last) in parts
        ]
        return [(key, field.lower(), each.offset_data, each.size) for each, key, field in split if field]


NAMES = ["a.jpg", "a.seg.png", "folder.x/b.JPG", "ä.txt", f"{'long' * 30}.txt", f"{'deep/' * 40}c.txt", "d.txt"]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_members_are_those_that_python_finds(tmp_path, form):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=form) as tar:
        for number, name in enumerate(NAMES):
            (tmp_path / "file").write_bytes(bytes(number * 300))
            tar.add(tmp_path / "file", name)
        tar.add(tmp_path, "folder", recursive=False)
    found = walked(path)
    assert found == by_tarfile(path)
    assert [key for key, *_ in found][:4] == ["a", "a", "folder.x/b", "ä"]
    assert [field for _, field, *_ in found][:3] == ["jpg", "seg.png", "jpg"]


def test_what_webdataset_skips_is_skipped(tmp_path):
    names = ["__meta__", "__index__/x.json", "README", ".hidden.txt", "a.txt"]
    path = write_tar(tmp_path / "a.tar", [(name, b"x") for name in names])
    assert [key for key, *_ in walked(path)] == ["a"]


def test_the_program_tar_writes_the_same(tmp_path):
    for name, content in samples(0, 3):
        (tmp_path / name).write_bytes(content)
    subprocess.run("tar --sort=name -cf a.tar *.txt *.cls", shell=True, cwd=tmp_path, check=True)
    assert walked(tmp_path / "a.tar") == by_tarfile(tmp_path / "a.tar")


def put(at: int, text: bytes):
    def change(content):
        content[at : at + len(text)] = text

    return change


DAMAGES = {
    "cut off within": (lambda c: c[:515], "it is cut off within '0000.txt', at 515 of at least 518 bytes"),
    "cut off between": (lambda c: c[:2048], "the two blocks of zeros at the end of an archive are missing"),
    "one block of zeros": (lambda c: c[:-512], "the two blocks of zeros at the end of an archive are missing"),
    "joined": (lambda c: c + c, "it continues after its end at byte 3,072, like archives that were joined by cat"),
    "no archive": (lambda c: b"x" * 2048, "it is not a tar archive. Archives must not be compressed"),
    "a damaged header": (put(1024 + 10, b"\xff"), "its header at byte 1,024 is damaged"),
    "empty": (lambda c: b"", "the two blocks of zeros"),
    "a size below zero": (put(124, b"-0000000001\0"), "it is not a tar archive"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_refused(tmp_path, damage):
    change, message = DAMAGES[damage]
    path = write_tar(tmp_path / "a.tar", [("0000.txt", b"text 0"), ("0000.cls", b"0"), ("1.txt", b"1")], mtime=0)
    content = bytearray(path.read_bytes()[: 6 * 512 + 1024])
    changed = change(content)
    path.write_bytes(content if changed is None else changed)
    with pytest.raises(Unsound, match=message):
        walked(path)


@pytest.mark.parametrize(
    ("name", "about", "message"),
    [
        ("../../etc/passwd.txt", {}, "points outside the archive"),
        ("/etc/passwd.txt", {}, "points outside the archive"),
        ("a/../../b.txt", {}, "points outside the archive"),
        ("a.txt", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link"),
        ("a.txt", {"type": tarfile.LNKTYPE, "linkname": "b.txt"}, "is a link"),
        ("a.txt", {"type": tarfile.CHRTYPE}, "has the type '3'"),
    ],
)
def test_what_points_elsewhere_is_refused(tmp_path, name, about, message):
    path = write_tar(tmp_path / "a.tar", [(name, b"")], **about)
    with pytest.raises(Unsound, match=message):
        walked(path)
