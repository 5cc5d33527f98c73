"""``python -m runner list``: list runs."""

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from manyheads.runner.errors import ConfigurationError, printable, printable_text
from manyheads.runner.machine.console import print_columns
from manyheads.runner.records.find import OUTPUTS, divided
from manyheads.runner.records.run_summary import ListedRun, summaries
from manyheads.runner.records.select import ordered, selected, unlike_metrics
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.data_files import without_collector
from manyheads.runner.run.progress import working
from manyheads.runner.wording import duration

HELP = "list runs and jobs of sweeps: status, metric, what was set"
TITLES = ("run", "name", "status", "metric", "time", "job", "set")


@dataclass(frozen=True)
class RunList(Answer):
    """The runs below some folders that match the filters, in the requested order."""

    runs: list[ListedRun]
    found: Annotated[int, "runs below the folders, matching or not"]
    filters: list[str]
    folders: list[str]
    notes: Annotated[list[str], "on metrics that were measured by several definitions"] = field(default_factory=list)

    def show(self) -> None:
        if self.runs:
            shared = shared_settings(self.runs)
            print_columns([TITLES, *(line(run, without=shared) for run in self.runs)])
            if shared:
                print(printable_text(f"all: {_settings(shared)}"))
            for note in self.notes:
                print(printable_text(note))
            return
        of = f" of {self.found} matches {' '.join(map(printable, self.filters))}" if self.filters and self.found else ""
        print(f"no run{of or ' below ' + ', '.join(map(printable, self.folders))}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value|folder",
        help="only runs with status=failed, model=resnet18, tags=baseline, ...; folders instead of outputs/",
    )
    parser.add_argument("--sort", metavar="KEY", help="a metric such as val_acc1, the best first; a column; a key")


def run(arguments: argparse.Namespace) -> RunList:
    """List the runs. Raises ConfigurationError."""
    return list_runs(arguments.overrides, sort=arguments.sort)


@without_collector()
def list_runs(words: Sequence[str], *, sort: str | None = None) -> RunList:
    """The runs below the folders in ``words`` that match the filters in it. Raises ConfigurationError.

    ``sort``: a metric, a column or a key.
    """
    filters, folders = divided(words)
    if folders == [OUTPUTS] and not OUTPUTS.is_dir():
        raise ConfigurationError(f"there is no folder {OUTPUTS} here. Name one with runs in it.")
    runs_by_path = {}
    with working("reading runs") as work:
        for run in (run for folder in folders for run in summaries(folder)):
            runs_by_path[run.folder.path] = run
            work.advance()
    runs = ordered(selected([*runs_by_path.values()], filters), sort)
    notes = unlike_metrics(runs, sort)
    return RunList([*map(ListedRun.of, runs)], len(runs_by_path), filters, [*map(str, folders)], notes)


def shared_settings(runs: Sequence[ListedRun]) -> dict[str, str]:
    """The overrides that all of several runs share."""
    first, *others = (run.typed for run in runs)
    return {key: value for key, value in first.items() if others and all(value == typed.get(key) for typed in others)}


def line(run: ListedRun, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The row of a run, with a text for each of TITLES. ``without``: keys of overrides that all runs share."""
    metric = "" if run.value is None else f"{run.metric} {run.value:.4g}"
    name = "" if run.name is None else str(run.name)
    typed = _settings({key: value for key, value in run.typed.items() if key not in without})
    if run.evaluates is not None:
        typed = f"evaluates {run.evaluates} {typed}".rstrip()
    return tuple(map(printable, (run.folder, name, run.status, metric, duration(run.seconds), run.job, typed)))


def _settings(typed: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in typed.items())
