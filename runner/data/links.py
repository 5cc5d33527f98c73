"""Reads files of a data folder that somebody may have sent, or that others write to, but no files outside it.

A file's location is checked by its descriptor once it is open, so later changes of the path do not matter.
"""

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.seal import is_own_place
from manyheads.runner.wording import nearest

MOST_BYTES = 2**30  # of an image file


def boundary(root: str | Path) -> str | None:
    """The path of ``root`` with links resolved, outside which nothing is read.

    None in folders that the user trusts, in which links may point anywhere.
    """
    inside = os.path.realpath(root)
    return None if is_own_place(Path(inside)) else inside


def is_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a folder, or a link to one; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def nearest_path(path: Path) -> str:
    """As ``nearest``, for a file or folder that does not exist: what is beside it has the accepted names."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return ""
    return nearest(path.name, (name for name in names if not name.startswith(".")))


@contextmanager
def opened(path: str | Path, within: str | None) -> Iterator[int]:
    """The descriptor of a file or folder. ``within``: the boundary that it must be in; None for no limit.

    Raises ConfigurationError for a file outside it, and OSError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe that nobody writes to would block
    try:
        if within is not None:
            _refuse_outside(_place(handle), path, within)
        yield handle
    finally:
        os.close(handle)


def content_of(path: str | Path, *, within: str | None = None, most: int = MOST_BYTES) -> bytes:
    """A file's content. Raises as ``opened``, and ValueError for what is not a plain file of at most ``most`` bytes."""
    with opened(path, within) as handle, open(handle, "rb", buffering=0, closefd=False) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise ValueError(f"it is not a plain file of at most {most} bytes")
        return file.read()


def refuse_leaving(path: str | Path, within: str | None) -> None:
    """Raises ConfigurationError for a path that points outside the boundary, before anything is opened."""
    if within is not None:
        _refuse_outside(os.path.realpath(path), path, within)


def _refuse_outside(target: str, path: str | Path, within: str) -> None:
    if not f"{target}/".startswith(f"{within}/"):
        raise ConfigurationError.at(
            "data.root",
            printable(within),
            f": {printable(path)} points outside this folder, which may have been sent to "
            f"you, so it is not read. If it is yours, run once: {invocation.command('trust', within)}",
        )


def _place(handle: int) -> str:
    """The path, without links, of what is open."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{handle}")
