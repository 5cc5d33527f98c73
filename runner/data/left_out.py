"""Counts what a data source does not read, so that a run says it."""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.errors import printable, warn
from manyheads.runner.wording import counted

NAMED = 3


@dataclass(frozen=True)
class LeftOut:
    """Things that were left out: how many, and the names of the first ones."""

    count: int = 0
    names: tuple[str, ...] = ()

    @staticmethod
    def of(names: Iterable[str]) -> "LeftOut":
        """What these names name."""
        every = sorted(names)
        return LeftOut(len(every), tuple(every[:NAMED]))

    @staticmethod
    def below(root: Path, read: Container[str] = (), *, suffixes: Container[str] = ()) -> "LeftOut":
        """The files below ``root`` that are not among those that are ``read``, except hidden ones.

        ``suffixes``: of files that do not count.
        """
        names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix.lower() not in suffixes)
        shown = (name for name in names if name not in read and not re.search(r"(^|/)\.", name))
        return LeftOut.of(name for name in shown if (root / name).is_file())

    def __add__(self, other: "LeftOut") -> "LeftOut":
        return LeftOut(self.count + other.count, (*self.names, *other.names)[:NAMED])

    def warn(self, one: str, after: str, *, many: str | None = None, before: str = "skipped") -> None:
        """Say it, if anything was left out. ``one``, ``many``: what it is; ``before`` and ``after``: the rest."""
        if self.count:
            more = ", ..." if self.count > len(self.names) else ""
            warn(f"{before} {counted(self.count, one, many)} ({printable(', '.join(self.names))}{more}){after}")


NOTHING = LeftOut()
