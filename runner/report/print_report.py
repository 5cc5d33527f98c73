"""The comparison in a terminal: a headline, the table, and the notes on it."""

from dataclasses import replace
from typing import Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from manyheads.runner.report.columns import Column, median, shown_columns
from manyheads.runner.report.comparison import Comparison

SPREAD = "the spread of s/epoch"
# Columns in the order in which they are dropped if they do not fit, by whether speed is compared. What the sweep is
# about is kept: the metric, or the objective that rows are sorted by.
DISPENSABLE = {
    True: (
        *("weights", "val_loss", "data_share", "peak_memory_mb", "marks", "ranks", "scaling_efficiency", "state"),
        *("held_mb", SPREAD, "samples_per_second", "runs", "seconds_per_epoch", "speed_up"),
    ),
    False: (
        *("weights", "ranks", "data_share", "held_mb", "peak_memory_mb", "samples_per_second", SPREAD, "marks"),
        *("seconds_per_epoch", "state", "val_loss", "runs"),
    ),
}
MOST_ROWS, MOST_LINES = 200, 12


def show(comparison: Comparison, *, console: Console | None = None) -> None:
    """Print the comparison. In a narrow window, columns are left out and named; a pipe gets all of them."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(Text(f"{comparison.title}: {comparison.headline}"))
    if not comparison.rows:
        return
    columns, omitted = shown_columns(comparison), []
    for name in _dispensable(comparison) if console.is_terminal else ():
        if _width(comparison, columns, console) <= console.width:
            break
        omitted += [SPREAD] if name == SPREAD else [column.title for column in columns if column.name == name]
        columns = _without(columns, name)
    console.print(_table(comparison, columns, folds=console.is_terminal))
    if len(comparison.rows) > MOST_ROWS:
        console.print(Text(f"... and {len(comparison.rows) - MOST_ROWS} more jobs, in comparison.md."))
    if comparison.caption:
        console.print(Text(comparison.caption))
    if omitted:
        console.print(Text(f"Columns that did not fit: {', '.join(omitted)}. They are in the files."))
    for lines in (comparison.notes, comparison.reasons):
        for line in lines[:MOST_LINES]:
            console.print(Text(line if len(line) < 600 else f"{line[:600]} ..."))
        if len(lines) > MOST_LINES:
            console.print(Text(f"... and {len(lines) - MOST_LINES} more, in comparison.md."))


def _dispensable(comparison: Comparison) -> tuple[str, ...]:
    names = DISPENSABLE[comparison.races]
    return names if comparison.races else (*names, comparison.metric.column)


def _without(columns: list[Column], name: str) -> list[Column]:
    if name == SPREAD:
        return [replace(each, text=median) if each.name == "seconds_per_epoch" else each for each in columns]
    return [column for column in columns if column.name != name]


def _width(comparison: Comparison, columns: list[Column], console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), _table(comparison, columns)).maximum


def _table(comparison: Comparison, columns: list[Column], *, folds: bool = False) -> Table:
    table = Table()
    for column in columns:
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        table.add_column(column.title, justify=justify, no_wrap=column.is_number or not folds, overflow="fold")
    rows = comparison.rows[:MOST_ROWS]
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        is_last = after is None or after.group != row.group
        style = "bold" if row.is_best else ""
        table.add_row(*(Text(column.text(row), style) for column in columns), end_section=is_last)
    return table
