"""Turns the growing tables of a run folder into points, and finds its new pictures, by the folder's content alone."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.tracker import Point
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import matching
from manyheads.runner.run.pictures import MOST_BYTES, step_of
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.tail import Tail

NO_VALUES = ("epoch", "step", "time", "started")
STEPS, EPOCHS = "steps", "epochs"


class TableRow(NamedTuple):
    """A point and its ``table``: ``STEPS`` or ``EPOCHS``."""

    table: str
    point: Point


class Tables:
    """steps.csv, epochs.csv, evaluations.csv, gpu.csv and host.csv of one run.

    An evaluation within an epoch is a point of the same curves as the one at its end.
    """

    def __init__(self, folder: RunFolder):
        self._steps, self._epochs = Tail(folder.steps), Tail(folder.epochs)
        self._evaluations = Tail(folder.evaluations)
        self._gpu, self._host = Tail(folder.gpu), Tail(folder.host)
        self._loads: list[dict[str, float]] = []
        self._early: list[dict[str, float]] = []  # rows of epochs whose last step has not been read
        self._step, self._time = -1, 0.0

    @property
    def step(self) -> int:
        """The step of the last row."""
        return max(self._step, 0)

    @property
    def time(self) -> float:
        """The time of the last row, in seconds since 1970."""
        return self._time

    def rows(self) -> list[TableRow]:
        """New rows in the order of steps, an epoch after its last step."""
        steps = list(self._steps.rows())  # read first: then no epoch's row is missing before a later step
        epochs = [*self._early, *self._epochs.rows(), *self._evaluations.rows()]
        self._loads += [*self._gpu.rows(), *self._host.rows()]
        last = max(chain((row.get("step", -1) for row in steps), [self._step]))
        self._early = [row for row in epochs if row.get("step", -1) > last]
        ordered = sorted(
            [
                *((row["step"], 0, row) for row in steps if "step" in row),
                *((row["step"], 1, row) for row in epochs if row.get("step", last + 1) <= last),
            ],
            key=lambda row: row[:2],
        )
        return [self._of_epoch(row) if kind else self._of_step(row) for _, kind, row in ordered]

    def _of_step(self, row: dict[str, float]) -> TableRow:
        self._step = int(row["step"])
        self._time = row.get("time", self._time)
        values = {f"train/{name}": value for name, value in row.items() if name not in NO_VALUES}
        return TableRow(STEPS, Point(self._step, self._time, values | self._load()))

    def _of_epoch(self, row: dict[str, float]) -> TableRow:
        values = {_tag(name): value for name, value in row.items() if name not in NO_VALUES}
        return TableRow(EPOCHS, Point(int(row["step"]), self._time, values))

    def _load(self) -> dict[str, float]:
        """Means of gpu.csv and host.csv since the previous row."""
        now = [row for row in self._loads if row.get("time", 0.0) <= self._time]
        self._loads = [row for row in self._loads if row.get("time", 0.0) > self._time]
        readings: dict[str, list[float]] = {}
        for row in now:
            whose = f"gpu{int(row['device'])}_" if "device" in row else ""
            for name, value in row.items():
                if name not in ("time", "device"):
                    readings.setdefault(f"system/{whose}{name}", []).append(value)
        return {tag: sum(values) / len(values) for tag, values in readings.items()}


def _tag(column: str) -> str:
    """The curve of a column of epochs.csv, named as in TensorBoard."""
    if column == "peak_memory_mb":
        return "memory/peak_mb"
    part = column.removesuffix("_seconds")
    return f"epoch/{column}" if part == column else f"seconds/{part}"


class DrawnPicture(NamedTuple):
    """A PNG, drawn after ``step`` updates, and its ``digest``."""

    name: str
    png: bytes
    step: int
    digest: str


class PictureFolder:
    """pictures/*.png of one run; one that was replaced before it was read is skipped."""

    def __init__(self, folder: RunFolder):
        self._folder = folder.pictures
        self._times: dict[Path, int] = {}  # of the files that were taken

    def new(self, last: float) -> Iterator[DrawnPicture]:
        """Pictures not taken before, of at most ``last`` updates; one is taken when the next one is asked for."""
        for path in matching(self._folder, "*.png"):
            with suppress(OSError):  # it has just been removed
                time = path.lstat().st_mtime_ns
                if self._times.get(path) == time:
                    continue
                picture = _read(path)
                if picture is not None and picture.step > last:
                    continue
                if picture is not None:
                    yield picture
                self._times[path] = time


def _read(path: Path) -> DrawnPicture | None:
    """The picture in a file; None for what no run has drawn, or is too large."""
    try:
        png = read_bytes(path, most=MOST_BYTES)
    except ConfigurationError:
        return None
    step = step_of(png)
    return None if step is None else DrawnPicture(path.stem, png, step, hashlib.sha256(png).hexdigest())
