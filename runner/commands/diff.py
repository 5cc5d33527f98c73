"""``python -m runner diff``: the differences between two runs."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from rich import box
from rich.table import Table
from rich.text import Text

from manyheads.runner.commands import A_RUN
from manyheads.runner.errors import ConfigurationError, printable, printable_text
from manyheads.runner.machine.console import Console
from manyheads.runner.option.tree import OPTION
from manyheads.runner.records.find import run_folder
from manyheads.runner.records.load_run import Run, load_run
from manyheads.runner.records.surroundings import differences
from manyheads.runner.records.values import text_of
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_types import Numbers
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.score_versions import version_of

HELP = "show what differs between two runs: config, code, machine, results"


@dataclass(frozen=True)
class DifferenceRow:
    """One difference: what differs, and its value in each run as text."""

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class RunDifference(Answer):
    """The recorded differences between two runs."""

    first: str
    second: str
    config: Annotated[list[DifferenceRow], "keys of the frozen configs; a value is empty if the config lacks the key"]
    origin: Annotated[list[DifferenceRow], "code, versions, machine and environment"]
    results: list[DifferenceRow]

    def show(self) -> None:
        sections = {"config": self.config, "code and machine": self.origin, "results": self.results}
        console = Console()
        if same := [name for name, rows in sections.items() if not rows]:
            console.print(f"the same: {', '.join(same)}")
        for name, rows in sections.items():
            if rows:
                console.print(_table(name, rows, (self.first, self.second)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("first", metavar="run", help=A_RUN)
    parser.add_argument("second", metavar="run", help="the folder of the other run")


def run(arguments: argparse.Namespace) -> RunDifference:
    """Compare the two runs. Raises ConfigurationError."""
    return difference(arguments.first, arguments.second)


def difference(first: str, second: str) -> RunDifference:
    """Compare two runs. Raises ConfigurationError for a folder that holds no run."""
    folders = (run_folder(first), run_folder(second))
    before, after = (load_run(folder.path, steps=()) for folder in folders)
    changed = differences(
        before.provenance, after.provenance, chosen=[], diffs=(_changes(folders[0]), _changes(folders[1]))
    )
    origin = [DifferenceRow(one.what, one.recorded, one.now) for one in changed]
    config, results = [*config_rows(before, after)], [*result_rows(before, after)]
    return RunDifference(str(folders[0]), str(folders[1]), config, origin, results)


def config_rows(before: Run, after: Run) -> Iterator[DifferenceRow]:
    """The keys in which the frozen configs differ; a value is empty if the config lacks the key."""
    for key in dict.fromkeys((*before.config, *after.config)):
        values = (before.config.get(key), after.config.get(key))
        if repr(values[0]) != repr(values[1]) and not key.endswith(f".{OPTION}"):
            yield DifferenceRow(key, *map(text_of, values))


def result_rows(before: Run, after: Run) -> Iterator[DifferenceRow]:
    """The results in which the runs differ."""
    for name in ("status", "epochs", "steps"):
        yield from _row(name, before.result.get(name), after.result.get(name))
    first, second = ({**(run.result.get("metrics") or {}), **_best(run)} for run in (before, after))
    for key in dict.fromkeys((*first, *second)):
        column = key.removeprefix("best ")
        versions = [version_of(run.result.get("scores") or {}, column) for run in (before, after)]
        if versions[0] != versions[1]:  # not the same number, so that equal values do not agree
            texts = [
                f"{_text(values.get(key))}, version {of}" for values, of in zip((first, second), versions, strict=True)
            ]
            yield DifferenceRow(f"{key} (not comparable)", *texts)
            continue
        yield from _row(key, first.get(key), second.get(key))
    for name in ("samples_per_second", "train_seconds", "weights_sha256"):
        yield from _row(name, before.result.get(name), after.result.get(name))


def _best(run: Run) -> Numbers:
    return {f"best {key}": value for key, value in (run.result.get("best") or {}).items()}


def _row(what: str, first: Any, second: Any) -> Iterator[DifferenceRow]:
    if first != second:
        yield DifferenceRow(what, _text(first), _text(second))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)[:16] if isinstance(value, str) else text_of(value)


def _changes(folder: RunFolder) -> bytes:
    with suppress(OSError, ConfigurationError):
        return folder.code_changes()
    return b""


def _table(name: str, rows: list[DifferenceRow], folders: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE, title=name, title_justify="left", title_style="bold", padding=(0, 1))
    for title in ("what", *folders):
        table.add_column(printable(title), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable_text(text)) for text in (row.what, row.first, row.second)))
    return table
