"""A logger: where a run's numbers go besides its tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LoggedRun:
    """What a logger is told of its run. ``step``: updates that were made before, of a run that is resumed.

    ``scores``: names of losses and metrics among the columns of epochs.csv.
    """

    folder: Path
    config: dict[str, Any]
    step: int
    scores: Sequence[str]


class Logger:
    """The base of all loggers; rank 0 has them. Each is an entry of ``logger`` in the run config.

    A logger may neither stop a run nor slow it down: what it raises becomes a warning, after which it is left alone,
    and its methods are called by a thread of its own, unless ``is_quick`` says that they take microseconds.
    """

    is_quick = False

    def start(self, run: LoggedRun) -> None:
        """The run begins, or is resumed."""

    def step(self, row: dict[str, Any]) -> None:
        """A row of steps.csv, by column."""

    def epoch(self, row: dict[str, Any]) -> None:
        """A row of epochs.csv, by column; None where nothing was measured."""

    def evaluation(self, row: dict[str, Any]) -> None:
        """A row of evaluations.csv, of an evaluation within an epoch, by column."""

    def picture(self, name: str, png: bytes, step: int) -> None:
        """A picture, such as a confusion matrix after ``step`` updates, which the folder ``pictures`` has as well."""

    def flush(self) -> None:
        """All rows so far should be where they go; called now and then, and before each checkpoint."""

    def end(self, result: dict[str, Any]) -> None:
        """What rank 0 knows of result.json; not called where training failed."""

    def close(self) -> None:
        """The last call, however the run ended."""
