"""The base class of trackers, which publish a run. A tracker reads the run folder in a process outside the ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrackedSweep:
    """The sweep that a run is a job of. ``key``: identifies it wherever its folder is."""

    folder: Path
    key: str
    name: str
    overrides: Sequence[str]


@dataclass(frozen=True)
class TrackedRun:
    """Describes a run to trackers; all of it is read from the run's folder.

    ``key``: identifies the run wherever its folder is; ``config``: by dotted key; ``facts``: commit, host, command and
    the like; ``started``: in seconds since 1970.
    """

    folder: Path
    key: str
    name: str
    notes: str | None
    tags: Sequence[str]
    group: TrackedSweep | None
    config: Mapping[str, Any]
    facts: Mapping[str, str]
    started: float


@dataclass(frozen=True)
class Point:
    """Measurements after ``step`` updates, by tag such as train/loss. ``time``: in seconds since 1970."""

    step: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run. ``status``: completed, failed or interrupted; or running if it has not ended."""

    status: str
    step: int
    time: float
    error: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)  # of the best epoch, by tag such as best/val_loss


class Tracker:
    """Base class of trackers, which are entries of ``logger`` whose ``_option_`` declares ``publishes``.

    An exception in any method means that the tracker cannot be reached now: the method is called again later, with the
    same arguments or more, possibly by another process on another machine. So every call may be repeated and must take
    effect only once. ``checkpoint``: none, best or last: which one is uploaded at the end.
    """

    def __init__(self, *, checkpoint: str = "none"):
        self.checkpoint = checkpoint

    def open(self, run: TrackedRun, recorded_name: str | None) -> int | None:
        """Find the run at the tracker, or create it. ``recorded_name``: what ``name`` returned the last time.

        Returns the last step that the tracker certainly has, -1 for none; None if it has everything that was sent.
        """
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The tracker's name for the run, once it is open."""
        raise NotImplementedError

    @property
    def url(self) -> str | None:
        """The address where a person can view the run."""
        return None

    def publish(self, points: Sequence[Point]) -> None:
        """Send points in the order of their steps; points are passed again only after a failure."""
        raise NotImplementedError

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Show a PNG that was drawn after ``step`` updates, of which points were published; by default, nothing.

        A later one of that name shows the same later on. At the end, ``upload`` gets the last one as a file, too.
        """

    def upload(self, path: Path, name: str) -> None:
        """Upload a file of the run folder, whose path in it is ``name``, replacing an earlier one of that name."""

    def close(self, outcome: RunOutcome) -> None:
        """The run has ended, or will be read again later. Returns when everything has arrived."""
