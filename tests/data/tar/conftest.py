"""Tar shards, written by Python's own tarfile."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

Files = Iterable[tuple[str, bytes]]


def write_tar(path: Path, files: Files, **about) -> Path:
    """An archive of these files. ``about``: attributes of each member's TarInfo."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            vars_of = {"mtime": 1.5} | about  # which needs a record of pax, as webdataset's writer leaves them
            for key, value in vars_of.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(content))
    return path


def samples(first: int, count: int) -> Files:
    """Samples of two fields each, of which one is a class number."""
    for number in range(first, first + count):
        yield f"{number:04d}.txt", f"text {number}".encode()
        yield f"{number:04d}.cls", str(number % 3).encode()


@pytest.fixture
def shards(tmp_path, monkeypatch) -> Path:
    """Shards of 5, 4 and 3 samples, the last of which validates."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "shards"
    write_tar(root / "train-0.tar", samples(0, 5))
    write_tar(root / "train-1.tar", samples(5, 4))
    write_tar(root / "val-0.tar", samples(9, 3))
    return root
