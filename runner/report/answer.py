"""The answer of ``report``, and of a sweep that has ended: the comparison as data, and in a terminal."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from manyheads.runner.machine.console import Console
from manyheads.runner.records.compared_runs import ComparedJob, ComparedRuns
from manyheads.runner.records.run_set import gather
from manyheads.runner.report.columns import Column, file_columns, median, shown_columns
from manyheads.runner.report.comparison import Comparison, compare


def compared_runs(comparison: Comparison, files: list[Path], *, is_shown: bool) -> ComparedRuns:
    """The comparison as data. is_shown: whether the text has its table."""
    columns = file_columns(comparison) if comparison.rows else []
    skipped = {"job", "jobs", "state", "folder", "marks", *comparison.swept}
    jobs = [
        ComparedJob(
            job=row.number,
            folder=row.first.run.folder,
            state=row.state,
            values=row.values,
            measures={
                column.name: None if (value := column.value(row)) == "" else value
                for column in columns
                if column.name not in skipped
            },
            remarks=row.marks,
        )
        for row in comparison.rows
    ]
    return ComparedRuns(
        title=comparison.title,
        folder=comparison.folder,
        headline=comparison.headline,
        metric=comparison.metric.column if comparison.rows else "",
        objective=comparison.objective.column if comparison.rows else "",
        compares_speed=comparison.races,
        jobs=jobs,
        notes=comparison.notes,
        reasons=comparison.reasons,
        files=files,
        table=partial(show, comparison) if is_shown else None,
    )


def of_sweep(sweep: Path) -> ComparedRuns:
    """The comparison of a sweep that has printed it. Raises ConfigurationError if there is none."""
    files = [path for form in ("csv", "md", "png", "html") if (path := sweep / f"comparison.{form}").exists()]
    return compared_runs(compare(gather([str(sweep)])), files, is_shown=False)


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
    """Print the comparison. In a narrow window columns are left out and named; a pipe gets all, if COLUMNS is unset."""
    console = console or Console()
    most = console.width if console.is_terminal or "COLUMNS" in os.environ else 10_000
    if not console.is_terminal:
        console.width = 10_000  # lines are not wrapped
    console.print(Text(f"{comparison.title}: {comparison.headline}"))
    if not comparison.rows:
        return
    columns, omitted = shown_columns(comparison), []
    unlimited = console.options.update(max_width=10_000)
    for name in (*DISPENSABLE[comparison.races], *([] if comparison.races else [comparison.metric.column])):
        if Measurement.get(console, unlimited, _table(comparison, columns)).maximum <= most:
            break
        if name == SPREAD:
            omitted.append(SPREAD)
            columns = [replace(one, text=median) if one.name == "seconds_per_epoch" else one for one in columns]
        else:
            omitted += [column.title for column in columns if column.name == name]
            columns = [column for column in columns if column.name != name]
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
