"""comparison.csv, with all columns and digits, and comparison.md, for pasting."""

import csv
import io

from manyheads.runner.report.columns import file_columns, shown_columns
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.run.data_files import no_formula


def as_csv(comparison: Comparison) -> str:
    """The table with one line per job; cells are empty if nothing was measured."""
    columns = file_columns(comparison)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([[no_formula(column.value(row)) for column in columns] for row in comparison.rows])
    return text.getvalue()


def as_markdown(comparison: Comparison) -> str:
    """The headline, the table, and the notes on it, in Markdown."""
    columns = shown_columns(comparison)
    parts = [f"**{_escaped(comparison.title)}**: {comparison.headline}"]
    if comparison.rows:
        rule = ["---:" if column.is_number else ":---" for column in columns]
        head = [_escaped(column.title) for column in columns]
        lines = [[_escaped(column.text(row)) for column in columns] for row in comparison.rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines)))
    parts.append(_escaped(comparison.caption))
    parts.append("\n".join(f"- {_escaped(line)}" for line in (*comparison.notes, *comparison.reasons)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _escaped(text: str) -> str:
    """The text escaped so that Markdown shows it unchanged: no markup, no HTML, one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\|*_`[]":
        text = text.replace(mark, f"\\{mark}")
    return text
