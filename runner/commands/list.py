"""``python -m runner list``: list runs."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.cells import cell_len, set_cell_size

from manyheads.runner.commands.runs.find import OUTPUTS
from manyheads.runner.commands.runs.run_summary import STATUSES, Summary, summaries
from manyheads.runner.commands.runs.select import ordered, selected, unlike_metrics
from manyheads.runner.errors import ConfigurationError, printable, printable_text
from manyheads.runner.machine.console import Console
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.data_files import without_collector
from manyheads.runner.run.progress import working
from manyheads.runner.wording import duration

HELP = "list runs and jobs of sweeps: status, metric, what was set"
TITLES = ("run", "name", "status", "metric", "time", "job", "set")


@dataclass(frozen=True)
class ListedRun:
    """A run in a list."""

    folder: str
    sweep: Annotated[str | None, "the folder of the sweep that it is a job of"]
    status: Annotated[str, f"one of {', '.join(STATUSES)}"]
    started: Annotated[float, "when it was frozen, in seconds since 1970"]
    seconds: Annotated[float | None, "how long it took, from its start to its end"]
    name: str | None
    tags: list[str]
    notes: str | None
    metric: Annotated[str, "the metric that its task is judged by"]
    value: Annotated[float | None, "that metric's value after the last epoch"]
    metrics: Annotated[dict[str, float | None], "all metrics of the last evaluation"]
    typed: Annotated[dict[str, str], "the overrides that were typed for it, by key"]
    job: Annotated[str, "what its queue reports about it; empty if it was not submitted to one"]

    @classmethod
    def of(cls, run: Summary) -> "ListedRun":
        """The entry of a summarized run."""
        about = {"name": None, "notes": None, **run.about, "tags": [str(each) for each in run.about.get("tags") or ()]}
        return cls(
            folder=str(run.folder),
            sweep=None if run.sweep is None else str(run.sweep),
            status=run.status,
            started=run.started,
            seconds=run.seconds,
            **about,
            metric=run.metric.column,
            value=run.measured,
            metrics=run.result.get("metrics") or {},
            typed=run.typed,
            job=run.job,
        )


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
            show([TITLES, *map(line, self.runs)])
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
    found = {}
    with working("reading runs") as work:
        for run in (run for folder in folders for run in summaries(folder)):
            found[run.folder.path] = run
            work.advance()
    runs = ordered(selected([*found.values()], filters), sort)
    notes = unlike_metrics(runs, sort)
    return RunList([*map(ListedRun.of, runs)], len(found), filters, [*map(str, folders)], notes)


def divided(words: Iterable[str]) -> tuple[list[str], list[Path]]:
    """The filters (key=value) and the folders in ``words``; outputs/ if none is named. Raises ConfigurationError."""
    words = list(words)
    filters = [word for word in words if "=" in word and not Path(word).is_dir()]
    folders = [Path(word) for word in words if word not in filters]
    if not folders and not OUTPUTS.is_dir():
        raise ConfigurationError(f"there is no folder {OUTPUTS} here. Name one with runs in it.")
    return filters, folders or [OUTPUTS]


def line(run: ListedRun) -> tuple[str, ...]:
    """The row of a run, with a text for each of TITLES."""
    metric = "" if run.value is None else f"{run.metric} {run.value:.4g}"
    name = "" if run.name is None else str(run.name)
    typed = " ".join(f"{key}={value}" for key, value in run.typed.items())
    return tuple(map(_one_line, (run.folder, name, run.status, metric, duration(run.seconds), run.job, typed)))


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print lines in columns, titles first, without empty columns; on a terminal, long lines are cut off."""
    shown = [index for index in range(len(lines[0])) if any(each[index] for each in lines[1:])]
    widths = {index: max(cell_len(each[index]) for each in lines) for index in shown}
    console = Console()
    for each in lines:
        text = "  ".join(set_cell_size(each[index], widths[index]) for index in shown).rstrip()
        if console.is_terminal and cell_len(text) > console.width:
            text = set_cell_size(text, console.width - 1) + "…"
        print(text)


def _one_line(text: str) -> str:
    return printable(text)
