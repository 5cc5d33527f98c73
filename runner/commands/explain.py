"""``manyheads explain``: what limits the speed of a run."""

import argparse

from manyheads.runner.answers.explain.answer import Explanation
from manyheads.runner.answers.explain.explain_run import explain

HELP = "measure what limits the speed of a run: loading data, computing, communication or the optimizer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    about = "as for train; or the folder of a run, and changes to its config"
    parser.add_argument("overrides", nargs="*", metavar="run or overrides", help=about)
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument("--picture", metavar="FILE", help="draw the times into a file that ends in .png or .svg")


def run(arguments: argparse.Namespace) -> Explanation:
    """Measure. Raises ConfigurationError, RunFailed."""
    return explain(arguments.overrides, config_dir=arguments.config_dir, picture=arguments.picture)
