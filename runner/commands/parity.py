"""``python -m runner parity``: take the same steps on several backends."""

import argparse

from manyheads.runner.parity.answer import Parity
from manyheads.runner.parity.run_parity import parity

HELP = "take the same steps on several backends, and show whether they differ and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides", nargs="*", help="as for train; parallel=single,ddp,... names the backends, by default all"
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument("--steps", default="10", help="number of steps (10)")


def run(arguments: argparse.Namespace) -> Parity:
    """Compare. Raises ConfigurationError, RunFailed."""
    return parity(arguments.overrides, steps=arguments.steps, config_dir=arguments.config_dir)
