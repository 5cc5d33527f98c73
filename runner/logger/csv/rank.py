"""What rank 0 writes while a run goes on: steps.csv, epochs.csv and TensorBoard's files."""

import csv
import io
import time
from pathlib import Path
from typing import Any

from manyheads.runner.logger.csv.columns import EPOCH_COLUMNS, SCORES, STEP_COLUMNS
from manyheads.runner.logger.tensorboard.rank import Board
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.run_folder import RunFolder

FLUSH_SECONDS = 0.25
STEP_TAGS = {name: f"train/{name}" for name in ("loss", "lr", "grad_norm", "samples_per_second")}
EPOCH_TAGS = {name: f"epoch/{name}" for name in SCORES}


class Recorder:
    """Writes nothing: what every rank but the first has. ``Files`` is the other one."""

    def step(self, row: dict[str, Any]) -> None:
        """One row of steps.csv."""

    def epoch(self, row: dict[str, Any]) -> None:
        """One row of epochs.csv."""

    def position(self) -> dict[str, int]:
        """Everything so far is on the disk; the sizes of the tables then."""
        return {}

    def close(self) -> None: ...


class Files(Recorder):
    """``position``: where a checkpoint left the tables; rows after it are cut. ``step``: its update.

    Rows that come in quick succession go to the disk together, at the latest with the first one after FLUSH_SECONDS.
    """

    def __init__(self, folder: RunFolder, *, position: dict[str, int], step: int):
        self._steps = Table(folder.steps, STEP_COLUMNS, position.get("steps", 0))
        self._epochs = Table(folder.epochs, EPOCH_COLUMNS, position.get("epochs", 0))
        self._board = Board(folder.tensorboard, purge_step=step + 1)
        self._flushed = -FLUSH_SECONDS

    def step(self, row: dict[str, Any]) -> None:
        self._steps.append(row)
        self._board.add({tag: row[name] for name, tag in STEP_TAGS.items()}, row["step"])
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def epoch(self, row: dict[str, Any]) -> None:
        self._epochs.append(row)
        self._board.add({tag: row[name] for name, tag in EPOCH_TAGS.items() if row[name] is not None}, row["step"])
        self._flush()

    def position(self) -> dict[str, int]:
        self._flush()
        return {"steps": self._steps.size(), "epochs": self._epochs.size()}

    def close(self) -> None:
        for file in (self._steps, self._epochs, self._board):
            file.close()

    def _flush(self) -> None:
        for file in (self._steps, self._epochs, self._board):
            file.flush()
        self._flushed = time.monotonic()


class Table:
    """A CSV file that grows by whole rows. ``size``: bytes to keep of what is there."""

    def __init__(self, path: Path, columns: tuple[str, ...], size: int):
        self._columns = columns
        self._file = open(path, "a", newline="", opener=no_link)  # noqa: SIM115
        self._file.truncate(min(size, self._file.seek(0, io.SEEK_END)))
        self._writer = csv.writer(self._file, lineterminator="\n")
        if size == 0:
            self._writer.writerow(columns)
            self.flush()

    def append(self, row: dict[str, Any]) -> None:
        self._writer.writerow([row[name] for name in self._columns])  # floats by their repr

    def flush(self) -> None:
        """Everything so far is on the disk."""
        self._file.flush()

    def size(self) -> int:
        """The file's size in bytes."""
        return self._file.seek(0, io.SEEK_END)

    def close(self) -> None:
        self._file.close()
