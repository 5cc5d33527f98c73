"""The display of a run: a header, a live line while training, a line for each epoch, a table at the end.

Rank 0 prints it, except for the first line, which the parent prints.
"""

import errno
import os
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from rich.cells import cell_len
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from manyheads.runner.machine.console import Console
from manyheads.runner.machine.process import leave_hung_up_terminal
from manyheads.runner.wording import duration

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 20.0
WIDE = 100  # columns of a terminal that has room for more words
BAR_WIDTH = 4  # of the bar, at least
LEFT_WIDTH = 14  # of the time that is left, with the spaces between columns
NAME_WIDTH = 9  # of the names in a header, such as "precision"
DISPENSABLE = ("metric", "pace", "speed", "loss")  # what a narrow terminal omits, in this order


class Screen(Console):
    """A console on which a closed pipe is an error like any other, and does not exit the process.

    Once its terminal has hung up it shows nothing, since the run continues, or is about to write a checkpoint.
    """

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        except OSError:
            if not leave_hung_up_terminal():
                raise

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Display:
    """The interface of a display. It shows nothing, and serves all ranks but the first, which has Terminal."""

    def header(self, lines: dict[str, str]) -> None:
        """Show names with their texts; called once for each part of the header."""

    def start(self, *, done: int, total: int) -> None:
        """Training starts, or continues, after ``done`` of ``total`` updates."""

    def phase(self, text: str) -> None:
        """Show which phase begins: an epoch, or its evaluation."""

    def update(self, done: int) -> None:
        """An update is done; called very often."""

    def interval(self, step: int, words: dict[str, str]) -> None:
        """A row of steps.csv was written. ``words``: ``loss``, ``metric``, ``pace``, ``speed``; empty if unknown."""

    def epoch(self, words: list[str]) -> None:
        """A row of epochs.csv was written. ``words``: which epoch it was, and what was measured."""

    def say(self, message: str) -> None:
        """Show a sentence, above the live line."""

    def table(self, title: str, rows: dict[str, str]) -> None:
        """Show names with their texts, at the end of the run."""

    def stop(self) -> None:
        """Remove the live line. Safe to call twice."""


class Terminal(Display):
    """A live bar on a terminal; elsewhere plain lines, one at each epoch and now and then."""

    def __init__(self, console: Console | None = None) -> None:
        # Folders may have brackets and colons.
        self._console = console or Screen()
        # FORCE_COLOR, which notebooks and CI services set, asks for colors, and for no line that is overwritten.
        self._live = self._console.is_interactive and self._console.file.isatty()
        self._shown = time.monotonic()
        self._progress: Progress | None = None
        self._words: dict[str, str] = {}
        self._phase, self._total = "", 0
        self._began = self._shown, 0  # when, and after how many updates

    def header(self, lines: dict[str, str]) -> None:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", width=NAME_WIDTH, no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in lines.items():
            grid.add_row(name, text)
        self._console.print(grid)

    def start(self, *, done: int, total: int) -> None:
        self._total, self._began = total, (time.monotonic(), done)
        if self._live:
            columns: list[ProgressColumn] = [
                TextColumn("{task.fields[where]}", markup=False),
                BarColumn(bar_width=None),
            ]
            columns += [TextColumn("{task.fields[words]}", markup=False)]
            columns += [TimeRemainingColumn(compact=True), TextColumn("left")]
            self._progress = Progress(
                *columns, console=self._console, auto_refresh=False, transient=True, expand=True, redirect_stderr=False
            )
            self._task = self._progress.add_task("", total=total, completed=done, where="", words="")
            self._progress.start()

    def phase(self, text: str) -> None:
        self._phase = text
        self._refresh()

    def update(self, done: int) -> None:
        if self._progress is not None and time.monotonic() - self._shown > LIVE_SECONDS:
            self._shown = time.monotonic()
            self._progress.update(self._task, completed=done)
            self._refresh()

    def _refresh(self) -> None:
        """Draw the live line, with as much as fits into the terminal."""
        if self._progress is None:
            return
        step = f"{self._progress.tasks[self._task].completed:.0f}/{self._total}"
        step = f"step {step}" if self._console.width >= WIDE else step
        room = self._console.width - LEFT_WIDTH - BAR_WIDTH
        both = f"{self._phase} {step}".strip()
        where = both if cell_len(both) <= room else self._phase or step
        words = fitting(self._words, room - cell_len(where) - 1)
        self._progress.update(self._task, where=where, words=words, refresh=True)

    def interval(self, step: int, words: dict[str, str]) -> None:
        self._words = {**words, "metric": words["metric"] or self._words.get("metric", "")}
        if not self._live and time.monotonic() - self._shown > PLAIN_SECONDS:
            self._shown = time.monotonic()
            values = "  ".join(filter(None, [*self._words.values(), self._left(step)]))
            self._console.print(f"step {step}/{self._total}  {values}", soft_wrap=True)

    def _left(self, step: int) -> str:
        """The remaining time of the run at its average pace so far, evaluations included."""
        began, done = self._began
        seconds = (self._shown - began) / max(1, step - done) * (self._total - step)
        return f"about {duration(seconds)} left" if seconds > 0 else ""

    def epoch(self, words: list[str]) -> None:
        self._shown = time.monotonic()
        self._console.print("  ".join(words), soft_wrap=not self._live)

    def say(self, message: str) -> None:
        self._console.print(message, soft_wrap=True)

    def table(self, title: str, rows: dict[str, str]) -> None:
        table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in rows.items():
            table.add_row(name, text)
        self._console.print(table)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def fitting(words: Mapping[str, str], room: int) -> str:
    """As many of the words as fit into ``room`` cells, in their order, separated by two spaces."""
    kept = {name: text for name, text in words.items() if text}
    for name in DISPENSABLE:
        if cell_len(text := "  ".join(kept.values())) <= room:
            return text
        kept.pop(name, None)
    return ""
