"""``manyheads scale``: predict a run on more devices."""

import argparse

from manyheads.runner.answers.scale.answer import Scale
from manyheads.runner.answers.scale.scale_run import ScaleTerms, scale
from manyheads.runner.answers.scale.simulator.catalog import DEVICE, DEVICES, NETWORK, NETWORKS, names
from manyheads.runner.answers.scale.targets import BATCH, OF_RUN
from manyheads.runner.errors import ConfigurationError

HELP = "predict time, efficiency, memory and cost on more devices, from a measurement of one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="run or overrides",
        help="as for train; or the folder of a run, and changes to its config",
    )
    parser.add_argument("--devices", metavar="N,N", help="numbers of devices, such as 8,64,512")
    parser.add_argument(
        NETWORK, metavar="NAME", help=f"the network between machines: {', '.join(names(NETWORKS))}, or a YAML file"
    )
    parser.add_argument(
        DEVICE,
        metavar="NAME",
        help=f"the devices, and how a machine connects them: {', '.join(names(DEVICES))}, or a YAML file; on CPUs cpu",
    )
    parser.add_argument(
        "--batch",
        choices=BATCH,
        default=OF_RUN,
        help="what keeps its number of samples on more devices: the run's updates (default), or each device's "
        "micro-batches",
    )
    parser.add_argument("--price", type=float, help="of a device for an hour, to show what a million samples cost")
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument(
        "--picture", metavar="FILE", help="draw efficiency against devices into a file that ends in .png or .svg"
    )


def run(arguments: argparse.Namespace) -> Scale:
    """Measure and predict. Raises ConfigurationError, RunFailed."""
    needed = {"--devices": "numbers of devices, such as 8,64", NETWORK: f"{', '.join(names(NETWORKS))}, or a YAML file"}
    for flag, allowed in needed.items():
        if getattr(arguments, flag.lstrip("-")) is None:
            raise ConfigurationError(f"{flag} is not set. Allowed: {allowed}.", key=flag)
    names_of_terms = ("devices", "network", "device", "batch", "price")
    terms = ScaleTerms(**{name: getattr(arguments, name) for name in names_of_terms})
    return scale(arguments.overrides, terms, config_dir=arguments.config_dir, picture=arguments.picture)
