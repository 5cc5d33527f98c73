"""A table of measurements, with a row every second."""

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from manyheads.runner.machine.process import in_background
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, no_link, read_text

EVERY_SECONDS = 1.0
MB = 1024 * 1024
Sample = Callable[[], Iterable[Sequence[Any]]]  # the rows of now, without the time
Source = Callable[[], AbstractContextManager[Sample]]  # opens what is measured


@contextmanager
def recorded(path: Path, columns: Sequence[str], source: Source) -> Iterator[None]:
    """Append rows to ``path`` meanwhile, from a thread.

    ``columns``: the first is the time, in seconds since 1970. A full disk ends the recording; rows already written
    stay.
    """
    with in_background(partial(_record, path, columns, source), name=path.name):
        yield


def _record(path: Path, columns: Sequence[str], source: Source, done: Event) -> None:
    with source() as sample:
        try:
            with open(path, "a", newline="", buffering=1, opener=no_link) as file:
                writer = csv.writer(file)
                if not file.tell():
                    writer.writerow(columns)
                before = read_text(path, most=MOST_TABLE_BYTES).partition("\n")[0]
                width = len(before.split(","))  # a run from before may have fewer columns
                while not done.wait(EVERY_SECONDS):
                    for row in sample():
                        writer.writerow([time.time(), *row][:width])
        except OSError:
            return
