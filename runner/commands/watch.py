"""``python -m runner watch``: follow a run or a sweep in the terminal."""

import argparse

from manyheads.runner.commands.runs.watch_runs import watch

HELP = "follow a run or a sweep: curves, speed, time left, jobs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "folder", nargs="?", help="the folder of a run or of a sweep; by default the newest in outputs/ that runs"
    )


def run(arguments: argparse.Namespace) -> None:
    """Show it until it has ended, or until Ctrl-C, which ends only this command."""
    watch(arguments.folder)
