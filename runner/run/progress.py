"""The progress of a command, on stderr: a bar, or lines if that is not a terminal, or JSON events."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

from manyheads.runner.errors import Interrupted, printable, printable_text
from manyheads.runner.machine.process import in_background

T = TypeVar("T")
JSON = "json"
QUIET = 2.0  # seconds in which nothing is shown: what is done by then needs no progress
BETWEEN = 10.0  # seconds between two lines where there is no terminal
REFRESH = 0.25  # seconds between two pictures of a bar
EVENT = '{"event": '  # how the line of an event begins
_FORM = "MANYHEADS_PROGRESS"  # an environment variable, since child processes report their progress too


def choose(form: str) -> None:
    """Set how this process and its children show progress: as text, or as json."""
    os.environ[_FORM] = form


def is_json() -> bool:
    """Whether events are wanted."""
    return os.environ.get(_FORM) == JSON


def event(name: str, **values: Any) -> None:
    """Print an event as one line of JSON, if events are wanted. ``name``: what happened, the key ``event``."""
    if is_json():
        from manyheads.runner.run.json_schema import to_json

        line = json.dumps({"event": name, "time": round(time.time(), 3), **to_json(values)}, ensure_ascii=False)
        sys.stderr.flush()
        os.write(2, f"{line}\n".encode())  # in one piece, among the lines of other processes


class Work:
    """Work that takes a while, such as reading many runs. ``total``: the number of parts; None if unknown."""

    def __init__(self, what: str, total: int | None = None):
        self.what, self.total, self.done = what, total, 0
        self._began = time.monotonic()

    def advance(self, what: str | None = None) -> None:
        """Note that another part is done. ``what``: the name of the next one, if it differs."""
        self.reach(self.done + 1, what)

    def reach(self, done: int, what: str | None = None) -> None:
        """Note that ``done`` parts are done. ``what``: the name of the next one, if it differs."""
        self.done = done
        self.next(what)

    def next(self, what: str | None = None) -> None:
        """Note what is done next; None: the same as before."""
        self.what = self.what if what is None else what
        if is_json():
            self._tell()

    def follow(self, ended: Event) -> None:
        """Show the progress until ``ended`` is set, also within a long part; nothing if that takes less than QUIET."""
        if ended.wait(QUIET):
            return
        if sys.stderr.isatty() and not is_json():
            self._draw(ended)
            return
        self._tell()
        while not ended.wait(BETWEEN):
            self._tell()

    def _tell(self) -> None:
        seconds = time.monotonic() - self._began
        left = None
        if self.done and self.total is not None:
            left = round(seconds / self.done * (self.total - self.done), 1)
        if is_json():
            event("progress", what=self.what, done=self.done, total=self.total, seconds_left=left)
            return
        count = "" if self.total is None else f", {self.done:,} of {self.total:,}"
        rest = "" if left is None else f", {left:.0f} s left"
        # Bypasses Python's buffer, whose lock a process forked meanwhile would inherit as taken.
        os.write(2, f"{printable(self.what)}{count}, after {seconds:.0f} s{rest}\n".encode())

    def _draw(self, ended: Event) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        from manyheads.runner.machine.console import Console

        columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
        if self.total is not None:
            columns += [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
            task = bar.add_task(printable(self.what), total=self.total)
            while not ended.wait(REFRESH):
                bar.update(task, completed=self.done, description=printable(self.what), refresh=True)


@contextmanager
def working(what: str, total: int | None = None, *, kept: str = "") -> Iterator[Work]:
    """A context that shows the progress of ``what``. ``kept``: says after Ctrl-C what is kept of the work."""
    work = Work(what, total)
    with keeping(what, kept):
        work.next()
        with in_background(work.follow, name="progress"):
            yield work


@contextmanager
def keeping(what: str, kept: str) -> Iterator[None]:
    """A context that tells a user who presses Ctrl-C what is kept of the work, unless ``kept`` is empty.

    The command prints it at its end: on stderr, or in the error of --json.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as stop:
        if kept:
            stop.add_note(f"{what}: {kept}")
        raise


def say(what: str) -> None:
    """Print what is being done in one line, at once: for long work during which stderr goes elsewhere."""
    if is_json():
        event("progress", what=what, done=None, total=None, seconds_left=None)
    else:
        print(printable_text(what), file=sys.stderr, flush=True)


def each(items: Iterable[T], what: str, *, total: int | None = None) -> Iterator[T]:
    """The items, one after the other, with progress. ``total``: their number, if ``items`` is an iterator."""
    if total is None:
        items = list(items)
        total = len(items)
    with working(what, total) as work:
        for item in items:
            yield item
            work.advance()
