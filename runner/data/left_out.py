"""Counts what a data source does not read, so that a run says it."""

from collections.abc import Iterable
from dataclasses import dataclass

from manyheads.runner.errors import printable, warn

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

    def __add__(self, other: "LeftOut") -> "LeftOut":
        return LeftOut(self.count + other.count, (*self.names, *other.names)[:NAMED])

    def warn(self, what: str, why: str) -> None:
        """Say it, if anything was left out. ``what``: it is, in the singular or plural; ``why``: the rest."""
        if self.count:
            more = ", ..." if self.count > len(self.names) else ""
            warn(f"{self.count:,} {what} ({printable(', '.join(self.names))}{more}) {why}")


NOTHING = LeftOut()
