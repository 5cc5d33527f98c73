"""``python -m runner clean``: remove runs, or their checkpoints."""

import argparse
from pathlib import Path

from manyheads.runner.commands.runs.find import OUTPUTS
from manyheads.runner.commands.runs.removable import Rules, age
from manyheads.runner.commands.runs.remove import Cleaned, clean

HELP = "remove runs or their checkpoints, after listing which and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", nargs="?", default=str(OUTPUTS), help="where to look (outputs)")
    parser.add_argument("--failed", action="store_true", help="only runs that failed")
    parser.add_argument("--older", metavar="30d", help="only runs unchanged for this long (h, d, w)")
    parser.add_argument("--keep-best", type=int, metavar="N", help="all but the N best, by the metric of their task")
    parser.add_argument("--checkpoints", action="store_true", help="only checkpoints, but never best.pt")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> Cleaned:
    """Remove what fits the rules. Raises ConfigurationError."""
    hours = None if arguments.older is None else age(arguments.older)
    rules = Rules(arguments.keep_best, hours, arguments.failed, arguments.checkpoints)
    return clean(Path(arguments.folder), rules, yes=arguments.yes)
