"""``python -m runner reproduce``: repeat a finished run, and show whether the result is the same."""

import argparse

from manyheads.runner.commands import A_RUN
from manyheads.runner.commands.reproduce.reproduce_run import Reproduced, reproduce

HELP = "repeat a finished run, and show whether the result is the same"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("overrides", nargs="*", help="changes, such as parallel=ddp launcher.nproc_per_node=3")
    parser.add_argument("--steps", help="stop after this many steps")
    parser.add_argument(
        "--code", action="store_true", help="with the recorded commit and changes instead of today's code"
    )


def run(arguments: argparse.Namespace) -> Reproduced:
    """Repeat it. Raises ConfigurationError, RunFailed."""
    return reproduce(arguments.run_folder, arguments.overrides, steps=arguments.steps, code=arguments.code)
