"""``manyheads tried``: which runs had these settings, and how they ended."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from manyheads.runner.errors import ConfigurationError, ExitCode, UnknownName, printable
from manyheads.runner.records.find import OUTPUTS, divided
from manyheads.runner.records.tried.index import IndexedRun, RunIndex, indexed
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.data_files import without_collector

HELP = "list the runs that had these settings, with those that failed or were refused"
NULL = ("null", "None")


@dataclass(frozen=True)
class TriedRun:
    """A run that had the settings."""

    folder: str
    status: Annotated[str, "as list shows it; skipped: a job of a sweep that was refused"]
    reason: Annotated[str, "why it failed or was refused; otherwise empty"]
    started: Annotated[float, "when it was frozen, in seconds since 1970"]
    metric: Annotated[str, "the metric that its task is judged by"]
    value: Annotated[float | None, "that metric's value after the last epoch"]


@dataclass(frozen=True)
class Tried(Answer):
    """The runs that had the settings, the newest first."""

    runs: list[TriedRun]
    found: Annotated[int, "runs below the folders, with these settings or not"]
    settings: list[str]
    folders: list[str]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.runs else ExitCode.NO

    def show(self) -> None:
        if not self.runs:
            print(f"not tried: none of {self.found} runs below {', '.join(map(printable, self.folders))}")
            return
        from manyheads.runner.machine.console import print_columns  # slow, and not needed for JSON

        print_columns([("run", "status", "metric", "why"), *map(_line, self.runs)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value|folder",
        help="optimizer.lr=0.1, model=mlp: what the runs had, typed or by default; folders instead of outputs/",
    )


def run(arguments: argparse.Namespace) -> Tried:
    """List the runs. Raises ConfigurationError."""
    return tried(arguments.overrides)


@without_collector()
def tried(words: Sequence[str]) -> Tried:
    """The runs below the folders in ``words`` that had the settings in it. Raises ConfigurationError."""
    settings, folders = divided(words)
    if folders == [OUTPUTS] and not OUTPUTS.is_dir():  # nothing was run here yet
        return Tried([], 0, settings, [str(OUTPUTS)])
    indexes = [indexed(folder) for folder in folders]
    pairs = [_pair(setting) for setting in settings]
    _refuse_unknown(indexes, [key for key, _ in pairs])
    runs = {path: row for index in indexes for path, row in _with_settings(index, pairs)}
    newest = sorted(runs.items(), key=lambda item: item[1].started, reverse=True)
    found = sum(len(index.rows) for index in indexes)
    return Tried([_answer(*item) for item in newest], found, settings, [*map(str, folders)])


def _pair(setting: str) -> tuple[str, str]:
    key, _, value = setting.partition("=")
    if key.startswith("~"):
        raise ConfigurationError(f"{setting}: a setting is key=value. Leave out ~{key[1:]}.", key=key)
    return key.lstrip("+"), value.strip("'\"")


def _with_settings(index: RunIndex, pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[Path, IndexedRun]]:
    wanted = [(*index.matching(key, value), value in NULL) for key, value in pairs]

    def fits(row: Sequence[Any]) -> bool:
        used = row[-1]
        return all(
            not fitting.isdisjoint(used) or (is_null and having.isdisjoint(used)) for having, fitting, is_null in wanted
        )

    return index.runs(fits)


def _refuse_unknown(indexes: Sequence[RunIndex], keys: Iterable[str]) -> None:
    """Raises UnknownName for a key that none of the runs has, and no option: nothing was tried with a mistyped one."""
    for key in keys:
        if any(index.rows for index in indexes) and not any(index.matching(key, "")[0] for index in indexes):
            from manyheads.runner.config.lookup import known_keys  # slow
            from manyheads.runner.wording import nearest

            if key not in (names := known_keys()):
                raise UnknownName(f"{key}: no run and no option has such a key.{nearest(key, names)}", key=key)


def _answer(path: Path, row: IndexedRun) -> TriedRun:
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) and path != here else path
    return TriedRun(str(shown), row.status, row.reason, row.started, row.metric, row.value)


def _line(run: TriedRun) -> tuple[str, ...]:
    metric = "" if run.value is None else f"{run.metric} {run.value:.4g}"
    return tuple(map(printable, (run.folder, run.status, metric, run.reason.partition("\n")[0])))
