"""Writes the tables of a run, steps.csv, epochs.csv and others, and passes their rows to its loggers."""

import csv
import io
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.columns import (
    MFU,
    SKIPPED,
    SPIKES,
    STEP_COLUMNS,
    TAKEN,
    epoch_columns,
    evaluation_columns,
)

if TYPE_CHECKING:  # whose module imports no torch either, but stands above
    from manyheads.runner.logger.logger import Logger

FLUSH_SECONDS = 0.25
Row = Mapping[str, Any]


class NullWriter:
    """The interface of a run's recorder. It writes nothing, and serves all ranks but the first, which has CSVWriter."""

    def step(self, row: Numbers) -> None:
        """Add a row to steps.csv."""

    def epoch(self, row: Numbers) -> None:
        """Add a row to epochs.csv."""

    def evaluation(self, row: Numbers) -> None:
        """Add a row to evaluations.csv."""

    def taken(self, row: Row) -> None:
        """Add a row to samples.csv."""

    def skipped(self, row: Row) -> None:
        """Add a row to skipped.csv."""

    def spike(self, row: Row) -> None:
        """Add a row to spikes.csv."""

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Write a picture that a metric or a callback drew after ``step`` updates, over an earlier one by that name."""

    def position(self) -> dict[str, int]:
        """Write out all rows so far. Returns the sizes of the tables in bytes, by name."""
        return {}

    def kept(self) -> list[tuple[str, Row]]:
        """The last rows, each with its table's name; none if this recorder does not keep them."""
        return []

    def catch_up(self, rows: list[tuple[str, Row]], *, after: int) -> None:
        """Add the rows of updates after ``after``, from rows that another rank has kept."""

    def end(self, result: ResultJson) -> None:
        """Called when the run ended without an error. ``result``: result.json as far as rank 0 knows it."""

    def close(self) -> None:
        """Complete the files. Safe to call twice."""


class CSVWriter(NullWriter):
    """Writes a run's tables, and passes their rows to its loggers.

    ``train``, ``val``: columns of the losses and metrics of each split; ``position``: the tables' sizes in bytes at the
    checkpoint that is resumed, to which they are truncated; ``within_epochs``: whether there are evaluations within
    epochs; ``has_mfu``: whether steps have an MFU; ``skips``: whether unreadable samples are skipped;
    ``finds_spikes``: whether on_spike is set; ``loggers``: already started.

    Rows in quick succession are written to disk together, at the latest with the first one after FLUSH_SECONDS.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        train: Sequence[str],
        val: Sequence[str],
        position: dict[str, int],
        within_epochs: bool = False,
        has_mfu: bool = False,
        skips: bool = False,
        finds_spikes: bool = False,
        loggers: "Sequence[Logger]" = (),
    ):
        columns = {
            "steps": (*STEP_COLUMNS, *([MFU] if has_mfu else [])),
            "epochs": epoch_columns(train, val),
            **({"evaluations": evaluation_columns(val)} if within_epochs else {}),
            "samples": TAKEN,
            **({"skipped": SKIPPED} if skips else {}),
            **({"spikes": SPIKES} if finds_spikes else {}),
        }
        self._tables = {
            name: CSVTable(getattr(folder, name), titles, position.get(name, 0)) for name, titles in columns.items()
        }
        self._pictures, self._loggers = folder.pictures, loggers
        self._flushed = -FLUSH_SECONDS

    def step(self, row: Numbers) -> None:
        self._tables["steps"].append(row)
        for logger in self._loggers:
            logger.step(row)
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def epoch(self, row: Numbers) -> None:
        self._tables["epochs"].append(row)
        for logger in self._loggers:
            logger.epoch(row)
        self._flush()

    def evaluation(self, row: Numbers) -> None:
        self._tables["evaluations"].append(row)
        for logger in self._loggers:
            logger.evaluation(row)
        self._flush()

    def taken(self, row: Row) -> None:
        self._tables["samples"].append(row)

    def skipped(self, row: Row) -> None:
        self._tables["skipped"].append(row)

    def spike(self, row: Row) -> None:
        self._tables["spikes"].append(row)

    def picture(self, name: str, png: bytes, step: int) -> None:
        make_folder(self._pictures)
        write_whole(self._pictures / f"{name}.png", png)
        for logger in self._loggers:
            logger.picture(name, png, step)

    def position(self) -> dict[str, int]:
        self._flush()
        return {name: table.size() for name, table in self._tables.items()}

    def end(self, result: ResultJson) -> None:
        self._flush()
        for logger in self._loggers:
            logger.end(result)

    def close(self) -> None:
        for table in self._tables.values():
            table.close()
        for logger in self._loggers:
            logger.close()

    def _flush(self) -> None:
        for table in self._tables.values():
            table.flush()
        for logger in self._loggers:
            logger.flush()
        self._flushed = time.monotonic()


class CSVTable:
    """A CSV file to which rows are appended. ``size``: bytes of an existing file to keep, and with them its columns."""

    def __init__(self, path: Path, columns: tuple[str, ...], size: int):
        self._path = path
        self._file = open(path, "a+", newline="", opener=no_link)  # noqa: SIM115
        self._file.truncate(min(size, self._file.seek(0, io.SEEK_END)))
        self._columns = self._header() or columns
        self._writer = csv.writer(self._file, lineterminator="\n")
        if size == 0:
            self._writer.writerow(columns)
            self.flush()

    def _header(self) -> tuple[str, ...]:
        """The columns of an existing table; a run that is resumed on other devices may have another last one."""
        self._file.seek(0)
        return tuple(next(csv.reader([self._file.readline()]), ()))

    def append(self, row: Row) -> None:
        """Add a row, which ``flush`` writes out."""
        # Floats by their repr. A table with an MFU may be continued on a device whose peak is unknown.
        self._writer.writerow([row.get(name, "") if name == MFU else row[name] for name in self._columns])

    def flush(self) -> None:
        """Write out all rows so far. Raises an OSError that names the file."""
        try:
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def size(self) -> int:
        """The file's size in bytes."""
        return self._file.seek(0, io.SEEK_END)

    def close(self) -> None:
        """Write out all rows and close the file. Raises OSError."""
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            with suppress(OSError):  # which flush has raised
                self._file.close()
