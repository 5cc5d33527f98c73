"""A fingerprint of a run's data: the names and sizes of its files and, on request, their contents.

Every file is asked for its size, each time. Nothing less would notice what programs do that write files in place, such
as a script that makes all photos smaller: a folder's own times change with its entries only. A fingerprint that says
"the same" and is wrong is worth nothing, and a million files on a local disk take 3 seconds, once for a command
(`tests/benchmarks/growth.py`). On a network each may take as long as its round trip: there is data.fingerprint=none.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.runner.option.declared import declared

BLOCK = 2**20


def fingerprint(section: dict[str, Any]) -> dict[str, Any] | None:
    """Of the files behind the config's data section; None where none can be read, or with data.fingerprint=none.

    ``sizes``: sha256 over the names, relative to the data's own folders, and sizes in bytes. ``contents``: sha256 over
    names and bytes with data.fingerprint=contents, else None.
    """
    kind = section.get("fingerprint", "none")  # what reads no file has no such key
    if kind == "none":
        return None
    sources = declared("data", section).sources()
    with suppress(OSError):  # the run itself will say what it can't read
        return _taken(tuple(sorted(sources.items())), reads_contents=kind == "contents")
    return None


@cache  # the jobs of a sweep have the same data
def _taken(sources: tuple[tuple[str, Path], ...], *, reads_contents: bool) -> dict[str, Any] | None:
    sizes, contents = hashlib.sha256(), hashlib.sha256()
    count = total = 0
    for folder in _folders(sources):
        lines = [f"{folder.name}{name}\0{size}\n" for name, size in folder.files]
        sizes.update("".join(lines).encode(errors="surrogateescape"))
        count, total = count + len(lines), total + sum(size for _, size in folder.files)
        for line, (name, _) in zip(lines, folder.files, strict=True) if reads_contents else ():
            contents.update(line.encode(errors="surrogateescape"))
            _read(f"{folder.path}{name}", contents)
    if not count:
        return None
    digests = {"sizes": sizes.hexdigest(), "contents": contents.hexdigest() if reads_contents else None}
    return {"files": count, "bytes": total, **digests}


class _Files(NamedTuple):
    """Files that follow each other in the order of their names, in one folder. ``files``: names and sizes.

    ``name``, ``path``: what each file's name is put behind, to be known by in the fingerprint, and to be found.
    """

    name: str
    path: str
    files: list[tuple[str, int]]


def _folders(sources: tuple[tuple[str, Path], ...]) -> Iterator[_Files]:
    for name, path in sources:
        if path.is_dir():
            yield from _below(f"{name}/", f"{path}/")
        elif path.exists():
            yield _Files(name, str(path), [("", path.stat().st_size)])


def _below(name: str, path: str) -> Iterator[_Files]:
    files: list[tuple[str, int]] = []
    here = os.open(path, os.O_RDONLY | os.O_DIRECTORY)  # files are found from here: a fifth quicker than from the root
    try:
        with os.scandir(here) as entries:
            found = sorted(entries, key=attrgetter("name"))
        for entry in found:
            if entry.name.startswith("."):  # locks, and what file managers leave
                continue
            if entry.is_dir():
                yield _Files(name, path, files)
                yield from _below(f"{name}{entry.name}/", f"{path}{entry.name}/")
                files = []
            else:
                files.append((entry.name, entry.stat().st_size))
    finally:
        os.close(here)
    yield _Files(name, path, files)


def _read(path: str, digest: Any) -> None:
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
