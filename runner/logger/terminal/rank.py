"""What rank 0 shows: a header, a live line while training, a line for each epoch, a table at the end."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 20.0


class Display:
    """Shows nothing: what every rank but the first has. ``Terminal`` is the other one."""

    def header(self, lines: dict[str, str]) -> None: ...

    def start(self, *, done: int, total: int) -> None:
        """Training starts, or continues, after ``done`` of ``total`` updates."""

    def phase(self, text: str) -> None:
        """What begins now: an epoch of how many, or its evaluation."""

    def update(self, done: int) -> None:
        """An update is done; called very often."""

    def interval(self, row: dict[str, Any], metric: str) -> None:
        """A row of steps.csv, and the interval's first metric in words; empty if there is none yet."""

    def epoch(self, row: dict[str, Any], *, epochs: int, scores: dict[str, str]) -> None:
        """A row of epochs.csv, and what was measured of each split, in words; empty where nothing was."""

    def say(self, message: str) -> None: ...

    def table(self, title: str, rows: dict[str, str]) -> None: ...

    def stop(self) -> None:
        """The live line goes; safe to call twice."""


class Terminal(Display):
    """A live bar on a terminal; elsewhere plain lines, one at each epoch and now and then."""

    def __init__(self, console: Console | None = None) -> None:
        # Folders may have brackets and colons.
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        # FORCE_COLOR, which notebooks and CI services set, asks for colors, and for no line that is overwritten.
        self._live = self._console.is_interactive and self._console.file.isatty()
        self._shown = time.monotonic()
        self._progress: Progress | None = None
        self._fields: dict[str, Any] = {"phase": "", "loss": "", "metric": "", "speed": ""}
        self._total = 0

    def header(self, lines: dict[str, str]) -> None:
        width = max(map(len, lines))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", width=width, no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in lines.items():
            grid.add_row(name, text)
        self._console.print(grid)

    def start(self, *, done: int, total: int) -> None:
        self._total = total
        if self._live:
            phase, *values = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in self._fields)
            columns: list[ProgressColumn] = [phase, TextColumn("{task.completed}/{task.total}")]
            columns += [BarColumn(bar_width=None), *values]
            columns += [TimeRemainingColumn(compact=True), TextColumn("left")]
            self._progress = Progress(
                *columns, console=self._console, auto_refresh=False, transient=True, expand=True, redirect_stderr=False
            )
            self._task = self._progress.add_task("", total=total, completed=done, **self._fields)
            self._progress.start()

    def phase(self, text: str) -> None:
        self._fields["phase"] = text
        if self._progress is not None:
            self._progress.update(self._task, refresh=True, **self._fields)

    def update(self, done: int) -> None:
        if self._progress is not None and time.monotonic() - self._shown > LIVE_SECONDS:
            self._shown = time.monotonic()
            self._progress.update(self._task, completed=done, refresh=True, **self._fields)

    def interval(self, row: dict[str, Any], metric: str) -> None:
        self._fields = {
            "phase": self._fields["phase"],
            "loss": f"loss {row['loss']:.4f}",
            "metric": metric or self._fields["metric"],
            "speed": f"{row['samples_per_second']:,.0f}/s",
        }
        if not self._live and time.monotonic() - self._shown > PLAIN_SECONDS:
            self._shown = time.monotonic()
            values = "  ".join(value for name, value in self._fields.items() if value and name != "phase")
            self._console.print(f"step {row['step']}/{self._total}  {values}", soft_wrap=True)

    def epoch(self, row: dict[str, Any], *, epochs: int, scores: dict[str, str]) -> None:
        parts = [f"epoch {row['epoch']}/{epochs}", *(f"{split} {text}" for split, text in scores.items() if text)]
        parts.append(f"{row['samples_per_second']:,.0f} samples/s")
        self._shown = time.monotonic()
        self._console.print("  ".join(parts), soft_wrap=not self._live)

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
