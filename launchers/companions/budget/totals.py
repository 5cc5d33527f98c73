"""Adds up what sessions have used, and compares it with the limits."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from manyheads.launchers.companions.budget.limits import SpendingLimits
from manyheads.launchers.companions.budget.spending import SpentSession
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.find import disk_use
from manyheads.runner.wording import duration, size_in_words

WORDS: dict[str, Callable[[float], str]] = {
    "device_seconds": "{:,.1f}".format,
    "runs": "{:,.0f}".format,
    "disk": size_in_words,
}


@dataclass(frozen=True)
class LimitUse:
    """A limit, and what was spent of it; both of ``until`` are times in seconds since 1970."""

    name: str
    limit: float
    spent: float

    @property
    def left(self) -> float:
        """The remainder: in device-seconds, runs, bytes, or seconds."""
        return max(0.0, self.limit - self.spent)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.limit

    @property
    def texts(self) -> tuple[str, str, str]:
        """The limit, what was spent, and what is left, as people read them."""
        if self.name == "until":
            return moment(self.limit), "", duration(self.left)
        words = WORDS[self.name]
        return words(self.limit), words(self.spent), words(self.left)


def uses(limits: SpendingLimits, sessions: Iterable[SpentSession], *, disk: float | None = None) -> list[LimitUse]:
    """Each limit that is set, with what the sessions have used. ``disk``: as last measured; None: measured now."""
    sessions = list(sessions)
    spent = {
        "device_seconds": lambda: sum(session.device_seconds for session in sessions),
        "runs": lambda: float(len({session.run for session in sessions})),
        "disk": lambda: disk_of(sessions) if disk is None else disk,
        "until": time.time,
    }
    limited = {name: limit for name in spent if (limit := getattr(limits, name)) is not None}
    return [LimitUse(name, limit, spent[name]()) for name, limit in limited.items()]


def disk_of(sessions: Iterable[SpentSession]) -> float:
    """The bytes of all their folders; those that were removed have none."""
    return float(sum(_bytes(Path(run)) for run in {session.run for session in sessions}))


def _bytes(folder: Path) -> int:
    with suppress(OSError, ConfigurationError):
        return disk_use(folder)
    return 0


def moment(seconds: float) -> str:
    """A time since 1970 as people read it."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def spent_in_words(use: LimitUse) -> str:
    """The sentence that a limit is spent, without its end."""
    limit, spent, _ = use.texts
    return f"until={limit} is over" if use.name == "until" else f"{use.name}: {spent} of {limit} are spent"


def left_in_words(some: Iterable[LimitUse]) -> str:
    """A sentence with the remainders of limits that are not spent; empty if there are none."""
    names = {"device_seconds": "{} device-seconds", "runs": "{} runs", "disk": "{} on the disk", "until": "{}"}
    left = [names[use.name].format(use.texts[2]) for use in some if not use.is_spent]
    return f" Left: {', '.join(left)}." if left else ""
