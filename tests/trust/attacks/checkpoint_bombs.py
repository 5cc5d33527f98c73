"""Checkpoints of some hundred bytes take gigabytes or never end: their bombs are where torch alone looks."""

import io
import pickle
import resource
import struct
import warnings
import zipfile

import pytest

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError

CALLS = b"\x80\x02]q\x00(cbuiltins\nbytearray\nJ" + struct.pack("<i", 10**9) + b"\x85Re."
PLAIN = pickle.dumps({"model": {}}, 2)


def attack(scene):
    for bomb in (fifth_pickle, two_entries, another_case, two_directories, lists_of_lists):
        path = scene.folder / f"{bomb.__name__}.pt"
        with warnings.catch_warnings(action="ignore"):
            path.write_bytes(bomb())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ConfigurationError, match="it calls|two entries of one name|again and again"):
            load(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KB


def archive(*files: tuple[str, bytes]) -> bytes:
    """A checkpoint with these files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, text in (*files, ("version", b"3\n"), ("byteorder", b"little")):
            file.writestr(f"archive/{name}", text)
    return content.getvalue()


def fifth_pickle() -> bytes:
    """torch's old format has five pickles."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]
    return b"".join(pickle.dumps(each, 2) for each in head) + PLAIN + CALLS


def two_entries() -> bytes:
    """zipfile reads the last entry of a name, torch the first."""
    return archive(("data.pkl", CALLS), ("data.pkl", PLAIN))


def another_case() -> bytes:
    """torch ignores the case of names."""
    return archive(("DATA.PKL", CALLS), ("data.pkl", PLAIN))


def two_directories() -> bytes:
    """Python's reader finds the last directory of an archive, others may find the first."""
    return archive(("data.pkl", CALLS)) + archive(("data.pkl", PLAIN))


def lists_of_lists() -> bytes:
    """Lists that hold one list twice, sixty levels deep."""
    content: object = []
    for _ in range(60):
        content = [content, content]
    return archive(("data.pkl", pickle.dumps({"model": content}, 2)))
