"""``python -m runner watch``: follow a run or a sweep in the terminal."""

import argparse
from dataclasses import dataclass
from typing import Annotated

from manyheads.runner.commands.runs.list_runs import ListedRun
from manyheads.runner.commands.runs.run_summary import summaries
from manyheads.runner.commands.runs.watch_runs import watch
from manyheads.runner.run.answer import Answer

HELP = "follow a run or a sweep: curves, speed, time left, jobs"


@dataclass(frozen=True)
class WatchedRuns(Answer):
    """A run, or the jobs of a sweep, at the end of the command; without a terminal, that is at once."""

    runs: list[ListedRun]
    has_ended: Annotated[bool, "false if something may still change"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "folder", nargs="?", help="the folder of a run or of a sweep; by default the newest in outputs/ that runs"
    )


def run(arguments: argparse.Namespace) -> WatchedRuns:
    """Show it until it has ended, or until Ctrl-C, which ends only this command. Raises ConfigurationError."""
    folder, has_ended = watch(arguments.folder)
    return WatchedRuns([ListedRun.of(each) for each in summaries(folder)], has_ended)
