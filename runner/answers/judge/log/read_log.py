"""The trials in the log of a search: a table such as ``results.tsv``, or lines of JSON such as ``.auto/log.jsonl``.

The formats are those of https://github.com/karpathy/autoresearch (program.md) and
https://github.com/davebcn87/pi-autoresearch (README.md); any other table needs a header.
"""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.data_files import read_text
from manyheads.runner.wording import listed

KEPT = ("keep", "kept", "true", "yes", "1")
FAILED = ("crash", "crashed", "fail", "failed", "error", "timeout", "checks_failed")
STATUS = ("status", "kept", "keep", "decision")  # columns that say whether a change was kept
ABOUT = ("description", "change", "name", "commit")  # columns that say what was tried


@dataclass(frozen=True)
class LoggedTrial:
    """A trial of a search. ``value``: None if it failed. ``line``: where the log has it, counted from 1."""

    line: int
    value: float | None
    is_kept: bool
    about: str


@dataclass
class SearchLog:
    """A log. ``sections``: trials that share a baseline, in order. ``unreadable``: the numbers of lines without one."""

    on: str = ""
    lower_is_better: bool | None = None  # None if the log does not say
    sections: list[list[LoggedTrial]] = field(default_factory=lambda: [[]])
    unreadable: list[int] = field(default_factory=list)

    def add(self, line: int, value: Any, status: Any, about: Any) -> None:
        """Add the trial of a line, or the line's number if it has none."""
        word = str(status).strip().lower()
        number = None if word in FAILED else _number(value)
        if number is None and word not in FAILED:
            self.unreadable.append(line)
        else:
            self.sections[-1].append(LoggedTrial(line, number, word in KEPT, printable(about or "").strip()))


def read_log(path: Path, on: str | None) -> SearchLog:
    """The trials in a log. on: the metric's column or name; None for the one that the format names.

    Raises ConfigurationError for a file that can't be read or holds no trial, or a metric that it lacks.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise ConfigurationError.at("--log", path, f" cannot be read: {error.strerror or error}.") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ConfigurationError.at("--log", path, " is empty.")
    log = _of_json(lines, on) if lines[0][1].lstrip().startswith("{") else _of_table(path, text, on)
    if not any(trial.value is not None for section in log.sections for trial in section):
        raise ConfigurationError.at("--log", path, f" has no trial with a value of {printable(log.on)}.")
    return log


def _of_json(lines: Sequence[tuple[int, str]], on: str | None) -> SearchLog:
    """The trials of lines of JSON. A line of type ``config`` names the metric and begins with a new baseline."""
    log = SearchLog(on=on or "metric")
    for number, line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            log.unreadable.append(number)
        elif row.get("type") == "config":
            if on is None:
                log.on = printable(row.get("metricName", log.on))
                log.lower_is_better = row.get("bestDirection", "lower") == "lower"
            log.sections.append([])
        elif "status" in row:
            named = row["metrics"] if isinstance(row.get("metrics"), dict) else {}
            value = row.get("metric") if on is None else named.get(on, row.get(on))
            log.add(number, value, row["status"], row.get("description"))
    return log


def _of_table(path: Path, text: str, on: str | None) -> SearchLog:
    """The trials of a table with a header, separated by tabs, semicolons or commas."""
    text = text.lstrip("\ufeff")
    delimiter = next((sign for sign in "\t;" if sign in text.split("\n", 1)[0]), ",")
    rows = csv.reader(text.splitlines(), delimiter=delimiter)
    names = [name.strip() for name in next(rows)]
    status = _column(names, STATUS)
    value = on or (names[1] if names[0] == "commit" and names[1:2] != [status] else None)
    columns = listed([*map(printable, names)], 9)
    if status is None:
        raise ConfigurationError.at("--log", path, f" lacks a column named {' or '.join(STATUS)}; it has {columns}.")
    if value not in names:
        raise ConfigurationError.at("--on", on or "", f": the log has no such column. Allowed: {columns}.")
    log, about = SearchLog(on=printable(value)), _column(names, ABOUT)
    for cells in _cells(rows, path):
        row = dict(zip(names, cells, strict=False))
        if row:
            log.add(rows.line_num, row.get(value), row.get(status), row.get(about or ""))
    return log


def _cells(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise ConfigurationError.at("--log", path, f" cannot be read: {error}.") from None


def _column(names: Sequence[str], accepted: Sequence[str]) -> str | None:
    """The first accepted name that a table has, in the table's spelling."""
    spelling = {name.lower(): name for name in names}
    return next((spelling[name] for name in accepted if name in spelling), None)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
