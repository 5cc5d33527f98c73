"""``python -m runner evaluate``: measure a run's weights on its own data or on other data."""

import argparse

from manyheads.runner.commands import A_RUN, add_weights
from manyheads.runner.commands.evaluate.evaluate_run import evaluate
from manyheads.runner.report.run_result import Result

HELP = "measure a run's weights on its own data or on other data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("overrides", nargs="*", help="changes, such as data.root=/data/others parallel=ddp")
    add_weights(parser)


def run(arguments: argparse.Namespace) -> Result:
    """Evaluate in a new run folder. Raises ConfigurationError."""
    return evaluate(arguments.run_folder, arguments.overrides, which=arguments.weights)
