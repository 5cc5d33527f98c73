"""A tracker: where a run is published. It reads the run folder, in a process beside the parent, and never in a rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Group:
    """The sweep that a run is a job of. ``key``: the same wherever its folder lies."""

    folder: Path
    key: str
    name: str
    overrides: Sequence[str]


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run, all of it from its folder. ``key``: the same wherever the folder lies.

    ``config``: by dotted key; ``facts``: commit, host, command and the like; ``started``: in seconds since 1970.
    """

    folder: Path
    key: str
    name: str
    notes: str | None
    tags: Sequence[str]
    group: Group | None
    config: Mapping[str, Any]
    facts: Mapping[str, str]
    started: float


@dataclass(frozen=True)
class Point:
    """What was measured after ``step`` updates, by tag such as train/loss. ``time``: in seconds since 1970."""

    step: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``status``: completed, failed or interrupted, or running while it has not."""

    status: str
    step: int
    time: float
    error: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)  # of the best epoch, by tag such as best/val_loss


class Tracker:
    """The base of all trackers. Each is an entry of ``logger``, whose ``_option_`` declares ``publishes``.

    Whatever its methods raise means that the tracker cannot be reached now: they are called again later, with the same
    arguments or more, also by another process on another machine. So each of them may happen twice and must count
    once. ``checkpoint``: none, best or last: which one is uploaded in the end.
    """

    def __init__(self, *, checkpoint: str = "none"):
        self.checkpoint = checkpoint

    def open(self, run: TrackedRun, known: str | None) -> int | None:
        """Find the run, or begin it. ``known``: what ``name`` said the last time.

        Returns the last step that the tracker has for certain, -1 for none; None where what was sent is there.
        """
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What the tracker calls the run, once it is open."""
        raise NotImplementedError

    @property
    def url(self) -> str | None:
        """Where a person finds it."""
        return None

    def publish(self, points: Sequence[Point]) -> None:
        """Points in the order of their steps, none of which it was given before but after a failure."""
        raise NotImplementedError

    def upload(self, path: Path, name: str) -> None:
        """A file of the run folder, whose path in it is ``name``, in the place of an earlier one of that name."""

    def close(self, outcome: Outcome) -> None:
        """The run has ended, or will be looked at later. Returns when everything has arrived."""
