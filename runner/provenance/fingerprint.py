"""A fingerprint of a run's data: the names and sizes of its files and, on request, their contents.

Every file's size is read each time. Nothing less would notice programs that write files in place, such as a script that
shrinks all photos: a folder's own times change only with its entries. A fingerprint that wrongly says "the same" is
worthless, and a million files on a local disk take 3 seconds, once per command (`tests/benchmarks/growth.py`). On a
network file system each file may cost a round trip: data.fingerprint=none turns it off.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.json_types import Fingerprint

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import DataOption

BLOCK = 2**20


def fingerprint(option: "DataOption") -> Fingerprint | None:
    """The fingerprint of the option's files; None if none can be read, or with data.fingerprint=none.

    ``sizes``: sha256 over the names, relative to the data's own folders, and sizes in bytes; ``times``: over names and
    the times of last changes. ``contents``: sha256 over names and bytes with data.fingerprint=contents, else None; in
    object storage of the index with its checksums.
    """
    if option.fingerprint == "none":
        return None
    sources = option.sources()
    with suppress(OSError, ConfigurationError):  # the run itself reports what it cannot read
        if (listing := option.listing()) is not None:
            lines = "".join(f"{name}\0{size}\n" for name, size in listing.objects)
            sizes = hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
            total = sum(size for _, size in listing.objects)
            return {"files": len(listing.objects), "bytes": total, "sizes": sizes, "contents": listing.digest}
        return _taken(tuple(sorted(sources.items())), reads_contents=option.fingerprint == "contents")
    return None


def of_weights(checkpoint: str | None) -> Fingerprint | None:
    """The fingerprint of a checkpoint, by names, sizes and times; None if there is none, or if it cannot be read."""
    with suppress(OSError):
        return None if checkpoint is None else _taken((("weights", Path(checkpoint)),), reads_contents=False)
    return None


@cache  # the jobs of a sweep have the same data
def _taken(sources: tuple[tuple[str, Path], ...], *, reads_contents: bool) -> Fingerprint | None:
    sizes, times, contents = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    count = total = 0
    for folder in _folders(sources):
        lines = [f"{folder.name}{name}\0{size}\n" for name, size, _ in folder.files]
        sizes.update("".join(lines).encode(errors="surrogateescape"))
        changed = "".join(f"{folder.name}{name}\0{time}\n" for name, _, time in folder.files)
        times.update(changed.encode(errors="surrogateescape"))
        count, total = count + len(lines), total + sum(size for _, size, _ in folder.files)
        for line, (name, _, _) in zip(lines, folder.files, strict=True) if reads_contents else ():
            contents.update(line.encode(errors="surrogateescape"))
            _read(f"{folder.path}{name}", contents)
    if not count:
        return None
    in_contents = contents.hexdigest() if reads_contents else None
    digests = {"sizes": sizes.hexdigest(), "contents": in_contents, "times": times.hexdigest()}
    return cast(Fingerprint, {"files": count, "bytes": total, **digests})


def forget_files() -> None:
    """Make the next fingerprint read its files again."""
    _taken.cache_clear()


class _Files(NamedTuple):
    """Consecutive files of one folder, in the order of their names. ``files``: names, sizes and times in ns.

    ``name``, ``path``: prefixes of each file's name, for the fingerprint and for its path on disk.
    """

    name: str
    path: str
    files: list[tuple[str, int, int]]


def _folders(sources: tuple[tuple[str, Path], ...]) -> Iterator[_Files]:
    for name, path in sources:
        if path.is_dir():
            yield from _below(f"{name}/", f"{path}/")
        elif path.exists():
            status = path.stat()
            yield _Files(name, str(path), [("", status.st_size, status.st_mtime_ns)])


def _below(name: str, path: str, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[_Files]:
    """The files of a folder and of those in it. ``above``: devices and inodes of the folders that contain it."""
    files: list[tuple[str, int, int]] = []
    here = os.open(path, os.O_RDONLY | os.O_DIRECTORY)  # lookups relative to it are a fifth faster
    try:
        status = os.fstat(here)
        if (this := (status.st_dev, status.st_ino)) in above:  # a link to a folder that contains it
            return
        with os.scandir(here) as entries:
            ordered = sorted(entries, key=attrgetter("name"))
        for entry in ordered:
            if entry.name.startswith("."):  # locks, and what file managers leave
                continue
            if entry.is_symlink() and not os.path.exists(f"{path}{entry.name}"):  # it leads nowhere
                continue
            if entry.is_dir():
                yield _Files(name, path, files)
                yield from _below(f"{name}{entry.name}/", f"{path}{entry.name}/", above | {this})
                files = []
            else:
                status = entry.stat()
                files.append((entry.name, status.st_size, status.st_mtime_ns))
    finally:
        os.close(here)
    yield _Files(name, path, files)


def _read(path: str, digest: Any) -> None:
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
