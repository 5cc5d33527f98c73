"""What a command is doing, for those who wait: on stderr a bar, or lines where there is no terminal, or JSON events."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from manyheads.runner.errors import printable

T = TypeVar("T")
JSON = "json"
QUIET = 2.0  # seconds in which nothing is shown: what is done by then needs no progress
BETWEEN = 10.0  # seconds between two lines where there is no terminal
_FORM = "MANYHEADS_PROGRESS"  # an environment variable, since child processes report their progress too


def choose(form: str) -> None:
    """How this process and its children show progress: as text, or as json."""
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
    """Something that takes a while, such as reading many runs. ``total``: of how many parts, None if unknown."""

    def __init__(self, what: str, total: int | None = None):
        self.what, self.total, self.done = what, total, 0
        self._began = self._told = time.monotonic()
        self._bar: Any = None

    def advance(self, what: str | None = None) -> None:
        """Another part is done; ``what``: what comes next, if that has another name."""
        self.done += 1
        self.show(what)

    def show(self, what: str | None = None) -> None:
        """Tell where it is, unless that was just told or all of it is quick."""
        self.what = self.what if what is None else what
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, description=printable(self.what))
            return
        now = time.monotonic()
        if is_json():
            left = self._seconds_left(now)
            event("progress", what=self.what, done=self.done, total=self.total, seconds_left=left)
        elif self.done != self.total and now - self._began >= QUIET and now - self._told >= BETWEEN:
            self._told = now
            print(printable(self._line(now)), file=sys.stderr, flush=True)

    def _seconds_left(self, now: float) -> float | None:
        if not self.done or self.total is None:
            return None
        return round((now - self._began) / self.done * (self.total - self.done), 1)

    def _line(self, now: float) -> str:
        count = "" if self.total is None else f", {self.done:,} of {self.total:,}"
        left = self._seconds_left(now)
        return f"{self.what}{count}, after {now - self._began:.0f} s" + ("" if left is None else f", {left:.0f} s left")


@contextmanager
def working(what: str, total: int | None = None, *, kept: str = "") -> Iterator[Work]:
    """Show that this is being done. ``kept``: what a user who presses Ctrl-C is told of what is left of it."""
    work = Work(what, total)
    try:
        if sys.stderr.isatty() and not is_json():
            with _bar(work):
                yield work
        else:
            work.show()
            yield work
    except KeyboardInterrupt:
        if kept:
            print(f"\n{what}: {kept}", file=sys.stderr)
        raise


def each(items: Iterable[T], what: str, *, kept: str = "") -> Iterator[T]:
    """The items, one after the other, with progress."""
    found = list(items)
    with working(what, len(found), kept=kept) as work:
        for item in found:
            yield item
            work.advance()


@contextmanager
def _bar(work: Work) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if work.total is not None:
        columns += [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        bar.add_task(printable(work.what), total=work.total)
        work._bar = bar
        yield
