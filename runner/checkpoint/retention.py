"""Which checkpoints are kept, and intervals as text, such as 2epochs and 500steps."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

EVERY = re.compile(r"(\d+)epochs?")
STEPS = re.compile(r"(\d+)steps?")


def interval(every: int | str) -> tuple[int, int]:
    """The interval between checkpoints, ``checkpoint.every``, in epochs and in updates, one of which is 0."""
    epochs = EVERY.fullmatch(every) if isinstance(every, str) else None
    return (int(epochs[1]), 0) if epochs else (0, int(every))


def steps_of(value: Any) -> int | None:
    """The number of updates in a text such as "500steps"; None for anything else."""
    match = STEPS.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) or None if match else None


HOUR = 3600


class Retention(NamedTuple):
    """Which checkpoints to keep. ``last``: this many of the newest; ``every``: those of every n-th update.

    ``hours``: one for each period of this many hours. 0 = none.
    """

    last: int = 0
    every: int = 0
    hours: float = 0

    @property
    def keeps_any(self) -> bool:
        return any(self)

    def staying(self, checkpoints: Mapping[int, Path]) -> set[Path]:
        """The checkpoints to keep, of those given by step in ascending order."""
        paths = [*checkpoints.values()]
        kept = set(paths[-self.last :] if self.last else [])
        kept |= {path for step, path in checkpoints.items() if self.every and step % self.every == 0}
        since = float("-inf")
        for path in paths if self.hours else []:
            written = path.stat().st_mtime
            if written >= since + self.hours * HOUR:
                kept.add(path)
                since = written
        return kept
