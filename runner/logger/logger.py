"""The base class of loggers, and a guard that keeps a logger that fails or is slow from disturbing the run."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.run.json_types import Numbers, ResultJson


@dataclass(frozen=True)
class LoggedRun:
    """Describes a run to its loggers. ``step``: number of updates made before this session, if the run was resumed.

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
        """Called with a row of steps.csv, by column.

        ``loss``, ``samples_per_second``, ``data_fraction`` and ``mfu``, the last two from 0 to 1, are of all ranks and
        of the updates since the last row; ``lr``, ``grad_norm`` and ``time``, in seconds since 1970, are those of the
        latest update.
        """

    def epoch(self, row: Numbers) -> None:
        """Called with a row of epochs.csv, by column; None for what was not measured.

        ``started`` is in seconds since 1970, other times in seconds, ``peak_memory_mb`` in 2**20 bytes of one rank.
        """

    def evaluation(self, row: Numbers) -> None:
        """Called with a row of evaluations.csv, from an evaluation within an epoch, by column."""

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Called with a PNG, such as a confusion matrix after ``step`` updates; the folder ``pictures`` has it too."""

    def flush(self) -> None:
        """Write out all rows so far; called now and then, and before each checkpoint."""

    def end(self, result: ResultJson) -> None:
        """Called with result.json as far as rank 0 knows it; not called if training failed."""

    def close(self) -> None:
        """Release resources; always called last, however the run ended."""


log = logging.getLogger(__name__)
MOST_WAITING = 1000  # pending calls; further ones are dropped
CLOSE_SECONDS = 10.0  # that the end of a run waits for a slow logger


class Guarded(Logger):
    """A ``logger`` that cannot disturb the run. ``name``: its key below ``logger``; ``say``: prints a line."""

    def __init__(self, name: str, logger: Logger, *, say: Callable[[str], None]):
        self._name, self._logger, self._say = name, logger, say
        self._works, self._left_out = True, 0
        self._waiting: queue.Queue[tuple[str, tuple[Any, ...]] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        if not logger.is_quick:
            self._thread = threading.Thread(target=self._work, name=f"logger.{name}", daemon=True)
            self._thread.start()

    def start(self, run: LoggedRun) -> None:
        self._pass_on("start", run)

    def step(self, row: Numbers) -> None:
        self._pass_on("step", row)

    def epoch(self, row: Numbers) -> None:
        self._pass_on("epoch", row)

    def evaluation(self, row: Numbers) -> None:
        self._pass_on("evaluation", row)

    def picture(self, name: str, png: bytes, step: int) -> None:
        self._pass_on("picture", name, png, step)

    def flush(self) -> None:
        self._pass_on("flush")

    def end(self, result: ResultJson) -> None:
        self._pass_on("end", result)

    def close(self) -> None:
        """Wait for pending calls, but not for long. Safe to call twice."""
        if self._thread is None:
            self._call("close")
            self._works = False
        elif self._thread.is_alive():
            self._pass_on("close")
            self._waiting.put(None) if not self._waiting.full() else None
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                self._warn(f"did not finish within {CLOSE_SECONDS:g} seconds of the run's end")
        if self._left_out:
            self._warn(f"was too slow: {self._left_out:,} rows were dropped")
            self._left_out = 0

    def _pass_on(self, method: str, *arguments: Any) -> None:
        if self._thread is None:
            self._call(method, *arguments)
            return
        try:
            self._waiting.put_nowait((method, arguments))
        except queue.Full:
            self._left_out += method in ("step", "epoch")

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            self._call(call[0], *call[1])

    def _call(self, method: str, *arguments: Any) -> None:
        if not self._works:
            return
        try:
            getattr(self._logger, method)(*arguments)
        except Exception as error:
            self._works = False
            log.warning("logger.%s: %s failed", self._name, method, exc_info=True)
            self._warn(f"failed and is not called any more ({type(error).__name__}: {error})")

    def _warn(self, what: str) -> None:
        self._say(f"warning: logger.{self._name} {what}")
