"""``python -m runner publish``: publish finished runs to a tracker."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from manyheads.launchers.companions.publishing.empty_folder import in_empty_folder, tell_unread
from manyheads.launchers.companions.publishing.publish_state import one_publisher
from manyheads.launchers.companions.publishing.publisher import Publisher, tracker_of
from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.section_rules import check_entry
from manyheads.runner.errors import ConfigurationError, ExitCode, Unavailable, complain
from manyheads.runner.logger.logger_option import LoggerOption
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import declared
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.progress import working
from manyheads.runner.run.run_folder import RunFolder

HELP = "publish runs or sweeps to a tracker such as mlflow or wandb; what has been sent is not sent again"


@dataclass(frozen=True)
class PublishedRun:
    """The publication of a run at one tracker."""

    folder: str
    tracker: str
    url: Annotated[str | None, "the run's address at the tracker, if it has one"]
    error: Annotated[str, "why something is missing at the tracker; empty if nothing is"]


@dataclass(frozen=True)
class PublishedRuns(Answer):
    """The published runs."""

    runs: list[PublishedRun]
    again: Annotated[str, "the command that sends what is missing; empty if nothing is"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.FAILED if self.again else ExitCode.DONE

    def show(self) -> None:
        for run in self.runs:
            if run.error:
                complain(f"{run.folder}: {run.error}")
            else:
                print(f"{run.folder}: published to {run.tracker}{f': {run.url}' if run.url else ''}")
        if self.again:
            print(f"To send what is missing, run: {self.again}", file=sys.stderr)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides", nargs="+", metavar="run|key=value", help="folders, and keys such as logger.mlflow.experiment=mine"
    )
    parser.add_argument(
        "--to", action="append", default=[], metavar="TRACKER", help="by default those in each run's config"
    )


def run(arguments: argparse.Namespace) -> PublishedRuns:
    """Publish runs, and the jobs of sweeps. Raises ConfigurationError before anything is sent."""
    keys = [word for word in arguments.overrides if word.startswith(("logger.", "+logger.")) and "=" in word]
    if not (paths := [word for word in arguments.overrides if word not in keys]):
        raise ConfigurationError("no run is named. Name the folders of runs or of sweeps.")
    typed, to = dict(map(_typed, keys)), arguments.to
    planned, trackers = [], list[LoggerOption]()
    for folder in _runs(paths):
        with Folder(folder.path) as held:
            held.refuse_links()
        options_of = _trackers_of(folder, to, typed)
        planned += [(folder, name, tracker_of(name, option.section)) for name, option in options_of.items()]
        trackers += options_of.values()
    tell_unread(trackers)
    runs = []
    kept = "what has been sent is recorded and not sent again"
    with working("publishing", len(planned), kept=kept) as work:
        for folder, name, tracker in planned:
            with one_publisher(folder, name), in_empty_folder():
                publisher = Publisher(folder, name, tracker)
                try:
                    publisher.finish()
                except ConfigurationError:
                    raise
                except Exception:  # whatever a tracker's client raises
                    runs.append(PublishedRun(str(folder), name, publisher.state.url, str(publisher.state.error)))
                else:
                    runs.append(PublishedRun(str(folder), name, publisher.state.url, ""))
            work.advance()
    again = invocation.command("publish", *paths, *(word for name in to for word in ("--to", name)), *keys)
    return PublishedRuns(runs, again if any(run.error for run in runs) else "")


def _runs(paths: Sequence[str]) -> Iterator[RunFolder]:
    """The runs at these paths; for a sweep, its started jobs."""
    for path in paths:
        if not (ledger := Ledger(path)).exists():
            yield RunFolder(path)
            continue
        jobs = [RunFolder(ledger.sweep / entry.folder) for entry in ledger.entries()]
        yield from (job for job in jobs if job.path.is_relative_to(ledger.sweep) and job.provenance.exists())


def _trackers_of(folder: RunFolder, to: Sequence[str], typed: dict[tuple[str, str], Any]) -> dict[str, LoggerOption]:
    """The trackers to publish a run to, by name: ``to`` or, if the user recorded it, its config's; with typed keys."""
    config = folder.read_config()
    recorded = {
        name: entry
        for name, entry in (config.get("logger") or {}).items()
        if folder.is_own() and declared("logger", entry).publishes
    }
    if not (names := to or list(recorded)):
        raise ConfigurationError(
            f"{folder} names no tracker. Choose one: --to {{{','.join(_trackers())}}}.", key="--to", allowed=_trackers()
        )
    available = list(dict.fromkeys([*recorded, *_trackers()]))
    trackers = {}
    for name in names:
        if name not in available:
            raise ConfigurationError.at(
                "--to", name, f": there is no such tracker. Allowed: {', '.join(available)}.", allowed=available
            )
        entry = dict(recorded.get(name) or read_option("logger", name)[name])
        entry |= {key: value for (tracker, key), value in typed.items() if tracker == name}
        check_entry("logger", name, entry)
        trackers[name] = declared("logger", entry, name=name)
        if reason := trackers[name].unavailable():
            raise Unavailable.at("--to", name, f": {reason}.")
    if unused := [f"logger.{name}.{key}" for name, key in typed if name not in trackers]:
        raise ConfigurationError(
            f"{unused[0]}: nothing is published to this tracker. Allowed: {', '.join(trackers)}.",
            key=unused[0],
            allowed=[*trackers],
        )
    return trackers


def _trackers() -> list[str]:
    """The names of the project's own trackers."""
    entries = {name: entry for option in options("logger") for name, entry in read_option("logger", option).items()}
    return [name for name, entry in entries.items() if declared("logger", entry).publishes]


def _typed(override: str) -> tuple[tuple[str, str], Any]:
    key, value = next(iter(typed_values([override]).items()), ("", None))
    group, name, setting = [*key.split(".", 2), "", ""][:3]
    if group != "logger" or not setting:
        raise ConfigurationError(
            f"{override} is not allowed. Allowed: the keys of a tracker, such as logger.mlflow.experiment=x.",
            key=key or override,
            value=value,
        )
    return (name, setting), value
