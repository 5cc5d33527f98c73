"""Reads the tables in which ranks recorded the samples that they took: samples.csv, skipped.csv and spikes.csv."""

import base64
import binascii
import csv
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.hardware import memory_bytes
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, read_text
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.columns import SKIPPED, SPIKES, TAKEN

_Row = TypeVar("_Row")
BYTES_PER_SAMPLE = 40  # of memory, for the samples of an epoch
MOST_SAMPLES = 2**36  # in a training set; with more, the table is taken to be damaged


@dataclass(frozen=True)
class SamplesRow:
    """A row of samples.csv: updates ``first`` to ``last`` of an epoch, of a run with ``size`` training samples.

    Updates and epochs are counted from 1.
    """

    epoch: int
    first: int
    last: int
    size: int


@dataclass(frozen=True)
class TakenRow(SamplesRow):
    """``samples``: how many samples the updates took; ``digest``: the sum of their hashes."""

    samples: int
    digest: int


@dataclass(frozen=True)
class BitmapRow(SamplesRow):
    """The samples of the updates: ``bits``, a bitmap; ``again``, those taken repeatedly."""

    bits: str
    again: tuple[int, ...]

    def mask(self) -> np.ndarray:
        """Whether each sample was taken, (size,) bool. Raises ConfigurationError if the bitmap is damaged."""
        length = -(-self.size // 8)
        try:
            content = zlib.decompressobj().decompress(base64.b64decode(self.bits, validate=True), length + 1)
        except (zlib.error, binascii.Error):
            content = b""
        if len(content) != length:
            raise ConfigurationError(f"samples.csv is damaged: the bitmap of updates {self.first} to {self.last}.")
        return np.unpackbits(np.frombuffer(content, np.uint8), count=self.size, bitorder="little").astype(bool)


@dataclass(frozen=True)
class Skipped:
    """A sample that could not be read in an epoch; the next readable one was used in its place."""

    epoch: int
    sample: int
    path: str
    reason: str


@dataclass(frozen=True)
class SkippedUpdate:
    """An update that was skipped because its loss or gradient norm spiked, or those of an update soon after it."""

    epoch: Annotated[int, "counted from 1"]
    update: Annotated[int, "its number in the run, counted from 1"]
    spike: Annotated[int, "the update that spiked: this one, or a later one"]
    reason: Annotated[str, "what spiked: nan, loss or grad_norm"]
    samples: Annotated[list[int], "their numbers in the training data, counted from 0"]


def read_taken(folder: RunFolder) -> tuple[list[TakenRow], list[BitmapRow]]:
    """Both kinds of rows of samples.csv, in order; none if the run has no such table. Raises ConfigurationError."""
    try:
        header, *lines = read_text(folder.samples, most=MOST_TABLE_BYTES).splitlines() or [""]
    except FileNotFoundError:
        return [], []
    names, memory = header.split(","), memory_bytes()
    taken, seen = [], []
    for number, line in enumerate(lines, 2):
        try:
            row = dict(zip(names, line.split(","), strict=True))
            epoch, first, last, size = (int(row[name]) for name in ("epoch", "first", "step", "of"))
            if not (epoch > 0 and 0 < first <= last and 0 < size <= MOST_SAMPLES):
                raise ValueError
            if size * BYTES_PER_SAMPLE > memory:
                raise ConfigurationError(
                    f"{folder.samples}, line {number}: comparing an epoch of {size:,} samples needs more memory than "
                    f"this machine's {memory:,} bytes. Audit it on another."
                )
            if row["bits"]:
                seen.append(BitmapRow(epoch, first, last, size, row["bits"], tuple(_numbers(row["again"]))))
            else:
                taken.append(TakenRow(epoch, first, last, size, int(row["samples"]), int(row["digest"], 16)))
        except (ValueError, KeyError):
            raise ConfigurationError(
                f"{folder.samples} is damaged: line {number} is not a row of {', '.join(TAKEN)}."
            ) from None
    return taken, seen


def read_skipped(folder: RunFolder) -> list[Skipped]:
    """The samples that were skipped; none if the table does not exist. Raises ConfigurationError if it is damaged."""
    return _rows(
        folder.skipped,
        SKIPPED,
        lambda row: Skipped(int(row["epoch"]), int(row["sample"]), row["path"], row["reason"]),
    )


def read_spikes(folder: RunFolder) -> list[SkippedUpdate]:
    """The updates that were skipped; none if the table does not exist. Raises ConfigurationError if it is damaged."""
    return _rows(
        folder.spikes,
        SPIKES,
        lambda row: SkippedUpdate(
            epoch=int(row["epoch"]),
            update=int(row["step"]),
            spike=int(row["spike"]),
            reason=row["reason"],
            samples=_numbers(row["samples"]),
        ),
    )


def _rows(path: Path, columns: Sequence[str], read: Callable[[dict[str, str]], _Row]) -> list[_Row]:
    """The rows of a table that exists only if something was recorded. Raises ConfigurationError."""
    try:
        lines = read_text(path, most=MOST_TABLE_BYTES).splitlines()
    except FileNotFoundError:
        return []
    try:
        return [read({name: row[name] for name in columns}) for row in csv.DictReader(lines)]
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error):
        raise ConfigurationError(f"{path} is damaged: a row lacks {', '.join(columns)}.") from None


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]
