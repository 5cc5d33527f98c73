"""A fingerprint of a run's data: the names and sizes of its files and, on request, their contents."""

import hashlib
import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from runner.data.base import Data
from runner.data.custom import Custom

BLOCK = 2**20


def fingerprint(section: dict[str, Any]) -> dict[str, Any] | None:
    """Of the files behind the config's data section; None where none can be read, or with data.fingerprint=none.

    ``sizes``: sha256 over the names, relative to the data's own folders, and sizes in bytes. ``contents``: sha256 over
    names and bytes with data.fingerprint=contents, else None.
    """
    if section["fingerprint"] == "none":
        return None
    sources = option_class(section["_target_"]).sources(section)
    with suppress(OSError):  # the run itself will say what it can't read
        return _taken(tuple(sorted(sources.items())), reads_contents=section["fingerprint"] == "contents")
    return None


@cache  # the jobs of a sweep have the same data
def _taken(sources: tuple[tuple[str, Path], ...], *, reads_contents: bool) -> dict[str, Any] | None:
    sizes, contents = hashlib.sha256(), hashlib.sha256()
    count = total = 0
    for name, path, size in _files(sources):
        sizes.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
        count, total = count + 1, total + size
        if reads_contents:
            contents.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
            _read(path, contents)
    if not count:
        return None
    digests = {"sizes": sizes.hexdigest(), "contents": contents.hexdigest() if reads_contents else None}
    return {"files": count, "bytes": total, **digests}


def option_class(target: str) -> type[Data]:
    """The data option of that name, without torch; of a class of the user's own what wraps it."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name) if module.startswith("runner.data.") else Custom


def _files(sources: tuple[tuple[str, Path], ...]) -> Iterator[tuple[str, str, int]]:
    """Name, path and size of each file, in the order of their names."""
    for name, path in sources:
        if path.is_dir():
            yield from _below(name, str(path))
        elif path.exists():
            yield name, str(path), path.stat().st_size


def _below(name: str, folder: str) -> Iterator[tuple[str, str, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):  # locks, and what file managers leave
                continue
            if entry.is_dir():
                yield from _below(f"{name}/{entry.name}", entry.path)
            else:
                yield f"{name}/{entry.name}", entry.path, entry.stat().st_size


def _read(path: str, digest: Any) -> None:
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
