"""The index of all runs below a folder: what was read of each run, used for as long as the run's folder is unchanged.

``<folder>/.tried/index.json`` can be deleted at any time. A folder is unchanged if it is the same inode with the same
change time, which the kernel sets when an entry is added, replaced or removed, and when the folder itself is moved; the
files of a run that has ended are only ever replaced. Folders that changed within the last SETTLED seconds are read
again the next time, since a further change may have the same time.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from manyheads import __version__
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.tree import TARGET
from manyheads.runner.records.find import Listing, jobs_of, listing, walk
from manyheads.runner.records.values import class_in_file, config_value, fits, has_key
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.run.yaml_text import Flat

PLACE = ".tried"  # the folder of the index, below the one that it is about
SETTLED = 2.0
MOST_BYTES = 2**28
_FORM = [1, __version__]
_SEALED = "index of runs"  # the purpose of its seal: what others wrote is not used


class IndexedRun(NamedTuple):
    """A run in the index.

    ``status``: as ``list`` shows it; ``reason``: why it failed or was refused, otherwise empty; ``started``: when it
    was frozen, in seconds since 1970; ``metric``, ``value``: by which its task is judged; ``signature``: of its config,
    None if it never started; ``sections``: numbers of the index's sections, of which its config consists.
    """

    status: str
    reason: str
    started: float
    metric: str
    value: float | None
    signature: str | None
    sections: list[int]


class RunIndex:
    """The runs below ``root``, by their paths in it, as they are at ``refresh``; ``sections``: what configs consist of.

    Each row has the values of a ``IndexedRun``.
    """

    def __init__(self, root: Path):
        self.root = root.resolve()
        self.path = self.root / PLACE / "index.json"
        self.rows: dict[str, Sequence[Any]] = {}
        self.sections: list[Flat] = []
        self._numbers: dict[str, int] = {}
        self._folders: Flat = {}  # as they were read: change time, inode, and both parts of the listing
        self._unchanged: set[str] = set()
        self._jobs = cache(jobs_of)

    def refresh(self) -> None:
        """Read what has changed, and write the index if anything has. Raises ConfigurationError without ``root``."""
        before, start = self._read(), len(str(self.root)) + 1
        known, rows = before.get("folders", {}), before.get("rows", {})
        self._numbers = {text: number for number, text in enumerate(before.get("sections", []))}
        now, kept = time.time(), {}

        def listed(folder: str) -> Listing:
            name = folder[start:]
            try:
                status = os.lstat(folder)
            except OSError:  # it was removed meanwhile
                return Listing((), ())
            if (earlier := known.get(name)) is not None and earlier[:2] == [status.st_ctime_ns, status.st_ino]:
                self._unchanged.add(name)
                self._folders[name] = earlier
                return Listing(*earlier[2:])
            content = listing(folder)
            if status.st_ctime_ns < (now - SETTLED) * 1e9:
                self._folders[name] = [status.st_ctime_ns, status.st_ino, [*content.marks], [*content.inner]]
            return content

        for path, sweep in walk(self.root, listed):
            if (name := path[start:]) in self._unchanged and name in rows:
                self.rows[name] = kept[name] = rows[name]
                continue
            from manyheads.runner.records.tried.entry import read_row  # slow; most calls find every run unchanged

            job = None if sweep is None else self._jobs(sweep).get(path)
            self.rows[name], is_final = read_row(Path(path), job, self._numbers)
            if is_final and name in self._folders:
                kept[name] = self.rows[name]
        self.sections = [json.loads(text) for text in self._numbers]
        if kept != rows or self._folders != known:
            self._write(kept)

    def runs(self, fits: Callable[[Sequence[Any]], bool]) -> Iterator[tuple[Path, IndexedRun]]:
        """The folders and rows of the runs that ``fits`` accepts by the values of their rows."""
        return ((self.root / name, IndexedRun(*row)) for name, row in self.rows.items() if fits(row))

    def matching(self, key: str, wanted: str) -> tuple[set[int], set[int]]:
        """The numbers of the sections that have ``key``, and of those whose value is ``wanted``."""
        target = class_in_file(wanted)
        having = {number: section for number, section in enumerate(self.sections) if has_key(section, key)}
        return {*having}, {
            number
            for number, section in having.items()
            if fits(config_value(section, key), wanted) or section.get(f"{key}.{TARGET}") == target
        }

    def _read(self) -> Flat:
        """The index as it was written; empty if there is none, or if it is damaged, somebody else's or a version's."""
        try:
            code, _, body = read_bytes(self.path, most=MOST_BYTES).partition(b"\n")
            if code.decode() != _code(body):
                return {}
            content: Flat = json.loads(body)
        except (OSError, ConfigurationError, ValueError):
            return {}
        return content if content["form"] == _FORM else {}

    def _write(self, rows: dict[str, Sequence[Any]]) -> None:
        """Write the index with these rows, and the sections that they use."""
        used = sorted({number for row in rows.values() for number in row[-1]})
        renumbered = {number: place for place, number in enumerate(used)}
        texts = [*self._numbers]
        body = json.dumps(
            {
                "form": _FORM,
                "folders": self._folders,
                "rows": {name: [*row[:-1], [renumbered[number] for number in row[-1]]] for name, row in rows.items()},
                "sections": [texts[number] for number in used],
            }
        ).encode()
        try:
            make_folder(self.path.parent)
            write_whole(self.path, _code(body).encode() + b"\n" + body)
        except (OSError, ConfigurationError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            warn(f"{self.path} can't be written: {why}. The runs are read again each time, which takes longer.")


def _code(body: bytes) -> str:
    digest = hashlib.sha256(body).hexdigest()
    return seal.keyed(_SEALED, digest) or digest


def indexed(root: Path) -> RunIndex:
    """The index of a folder, up to date. Raises ConfigurationError if the folder does not exist."""
    index = RunIndex(root)
    index.refresh()
    return index
