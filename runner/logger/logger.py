"""The base class of loggers: where a run's numbers go in addition to its tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.run.json_types import Numbers, ResultJson


@dataclass(frozen=True)
class LoggedRun:
    """What a logger knows about its run. ``step``: number of updates made before this session, if the run was resumed.

    ``scores``: the names of losses and metrics among the columns of epochs.csv.
    """

    folder: Path
    config: dict[str, Any]
    step: int
    scores: Sequence[str]


class Logger:
    """Base class of loggers, which are entries of ``logger`` in the run config and live on rank 0.

    A logger can neither stop a run nor slow it down: an exception becomes a warning, after which the logger is not
    called any more, and its methods are called by a separate thread, unless ``is_quick`` declares that they take
    microseconds.
    """

    is_quick = False

    def start(self, run: LoggedRun) -> None:
        """Called when the run starts or is resumed."""

    def step(self, row: Numbers) -> None:
        """Called with a row of steps.csv, by column."""

    def epoch(self, row: Numbers) -> None:
        """Called with a row of epochs.csv, by column; None for what was not measured."""

    def evaluation(self, row: Numbers) -> None:
        """Called with a row of evaluations.csv, from an evaluation within an epoch, by column."""

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Called with a PNG, such as a confusion matrix after ``step`` updates; the folder ``pictures`` has it too."""

    def flush(self) -> None:
        """Write out all rows so far; called now and then, and before each checkpoint."""

    def end(self, result: ResultJson) -> None:
        """Called with result.json as far as rank 0 knows it; not called if training failed."""

    def close(self) -> None:
        """Always the last call, however the run ended."""
