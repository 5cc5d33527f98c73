"""``python -m runner show``: all about one run."""

import argparse

from manyheads.runner.commands import A_RUN
from manyheads.runner.runs.page import show_run

HELP = "all about one run: where it came from, what came of it, how to go on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what may follow the command's name."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)


def run(arguments: argparse.Namespace) -> None:
    """Print the page."""
    show_run(arguments.run_folder)
