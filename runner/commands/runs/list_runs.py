"""``list``: many runs, one a line."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from manyheads.runner.commands.runs.find import OUTPUTS
from manyheads.runner.commands.runs.run_summary import Summary, summaries
from manyheads.runner.commands.runs.select import ordered, selected
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.data_files import without_collector

TITLES = ("run", "name", "status", "metric", "time", "job", "set")


@without_collector()
def list_runs(words: Sequence[str], *, sort: str | None = None, as_json: bool = False) -> None:
    """Print the runs below the folders among ``words`` that fit the filters among them. Raises ConfigurationError."""
    filters, folders = divided(words)
    found = {run.folder.path: run for folder in folders for run in summaries(folder)}
    runs = ordered(selected([*found.values()], filters), sort)
    if as_json:
        print(json.dumps([run.to_json() for run in runs], indent=2, default=str))
    elif runs:
        show([TITLES, *map(line, runs)])
    else:
        of = f" of {len(found)} matches {' '.join(map(printable, filters))}" if filters and found else ""
        print(f"no run{of or ' below ' + ', '.join(printable(folder) for folder in folders)}")


def divided(words: Iterable[str]) -> tuple[list[str], list[Path]]:
    """Filters, which are key=value, and folders; outputs/ where none is named."""
    words = list(words)
    filters = [word for word in words if "=" in word and not Path(word).is_dir()]
    folders = [Path(word) for word in words if word not in filters]
    if not folders and not OUTPUTS.is_dir():
        raise ConfigurationError(f"there is no folder {OUTPUTS} here. Name one with runs in it.")
    return filters, folders or [OUTPUTS]


def line(run: Summary) -> tuple[str, ...]:
    """What the columns of TITLES say of it."""
    metric = "" if run.measured is None else f"{run.metric.column} {run.measured:.4g}"
    name = "" if run.name is None else str(run.name)
    typed = " ".join(f"{key}={value}" for key, value in run.typed.items())
    return tuple(map(_one_line, (str(run.folder), name, run.status, metric, duration(run.seconds), run.job, typed)))


def duration(seconds: float | None) -> str:
    """``12 s``, ``3:05 min``, ``2:03:05 h``."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print lines in columns, without those that are empty; on a terminal what is too long at the end is cut off."""
    shown = [index for index in range(len(lines[0])) if any(each[index] for each in lines[1:])]
    widths = {index: max(cell_len(each[index]) for each in lines) for index in shown}
    console = Console(highlight=False, markup=False, emoji=False)
    for each in lines:
        text = "  ".join(set_cell_size(each[index], widths[index]) for index in shown).rstrip()
        if console.is_terminal and cell_len(text) > console.width:
            text = set_cell_size(text, console.width - 1) + "…"
        print(text)


def _one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
