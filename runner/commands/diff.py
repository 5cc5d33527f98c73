"""``python -m runner diff``: two runs side by side."""

import argparse

from manyheads.runner.commands import A_RUN
from manyheads.runner.commands.runs.run_difference import RunDifference, difference

HELP = "show what differs between two runs: config, code, machine, results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("first", metavar="run", help=A_RUN)
    parser.add_argument("second", metavar="run", help="the folder of the other run")


def run(arguments: argparse.Namespace) -> RunDifference:
    """What differs. Raises ConfigurationError."""
    return difference(arguments.first, arguments.second)
