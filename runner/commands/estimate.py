"""``python -m runner estimate``: predict each rank's memory and communication."""

import argparse

from manyheads.runner.answers.estimate.answer import Estimates
from manyheads.runner.answers.estimate.run_estimate import estimate

HELP = "predict what each rank would hold and send, without needing the devices or the memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides", nargs="*", help="as for train; several values, as in parallel=fsdp,tensor, give a row each"
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument(
        "--device-memory",
        metavar="SIZE",
        help="memory of each rank's device, such as 80GB; by default that of this machine's GPUs",
    )
    parser.add_argument("--picture", metavar="FILE", help="draw the estimate into a file that ends in .png or .svg")


def run(arguments: argparse.Namespace) -> Estimates:
    """Estimate. Raises ConfigurationError."""
    return estimate(
        arguments.overrides,
        config_dir=arguments.config_dir,
        device_memory=arguments.device_memory,
        picture=arguments.picture,
    )
