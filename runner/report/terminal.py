"""The comparison in a terminal: one line on the state of things, the table, what to know about it."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from runner.report.columns import Column, shown_columns
from runner.report.comparison import Comparison

DISPENSABLE = ("weights", "val_loss", "data_share", "peak_memory_mb", "marks", "ranks", "scaling_efficiency", "state")
MOST_ROWS, MOST_LINES = 200, 12


def show(comparison: Comparison, *, console: Console | None = None) -> None:
    """Print it. Where the window is narrow, columns are left out and named; a pipe gets them all."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(Text(f"{comparison.title}: {comparison.headline}"))
    if not comparison.rows:
        return
    columns, omitted = shown_columns(comparison), []
    for name in DISPENSABLE if console.is_terminal else ():
        if _width(comparison, columns, console) <= console.width:
            break
        omitted += [column.title for column in columns if column.name == name]
        columns = [column for column in columns if column.name != name]
    console.print(_table(comparison, columns, folds=console.is_terminal))
    if len(comparison.rows) > MOST_ROWS:
        console.print(Text(f"... and {len(comparison.rows) - MOST_ROWS} jobs more, which comparison.md has."))
    if comparison.caption:
        console.print(Text(f"{comparison.caption[0].upper()}{comparison.caption[1:]}."))
    if omitted:
        console.print(Text(f"Left out for want of width: {', '.join(omitted)}. The files have them."))
    for lines in (comparison.notes, comparison.reasons):
        for line in lines[:MOST_LINES]:
            console.print(Text(line if len(line) < 600 else f"{line[:600]} ..."))
        if len(lines) > MOST_LINES:
            console.print(Text(f"... and {len(lines) - MOST_LINES} more, which comparison.md has."))


def _width(comparison: Comparison, columns: list[Column], console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), _table(comparison, columns)).maximum


def _table(comparison: Comparison, columns: list[Column], *, folds: bool = False) -> Table:
    table = Table()
    for column in columns:
        right = column.is_number
        table.add_column(column.title, justify="right" if right else "left", no_wrap=not folds, overflow="fold")
    rows = comparison.rows[:MOST_ROWS]
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        is_last = after is None or after.group != row.group
        table.add_row(*(Text(column.text(row)) for column in columns), end_section=is_last)
    return table
