"""``manyheads scale``: what more devices would bring."""

import argparse

from manyheads.runner.commands.scale.answer import Scale
from manyheads.runner.commands.scale.scale_run import Terms, scale
from manyheads.runner.commands.scale.simulator.catalog import DEVICE, DEVICES, NETWORK, NETWORKS, names
from manyheads.runner.commands.scale.targets import BATCH, OF_RUN

HELP = "predict time, efficiency, memory and cost on more devices, from a measurement of one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    about = "as for train; or the folder of a run, and changes to its config"
    parser.add_argument("overrides", nargs="*", metavar="run or overrides", help=about)
    parser.add_argument("--devices", required=True, metavar="N,N", help="how many devices, such as 8,64,512")
    networks = f"between machines: {', '.join(names(NETWORKS))}, or a YAML file"
    parser.add_argument(NETWORK, required=True, metavar="NAME", help=networks)
    devices = f"and how a machine connects its own: {', '.join(names(DEVICES))}, or a YAML file; on CPUs cpu"
    parser.add_argument(DEVICE, metavar="NAME", help=devices)
    batch = "what keeps its number of samples: the run's updates (default), or the micro-batches of a device"
    parser.add_argument("--batch", choices=BATCH, default=OF_RUN, help=batch)
    parser.add_argument("--price", type=float, help="of a device for an hour, for the cost of a million samples")
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    about = "draw efficiency against devices into a file that ends in .png or .svg"
    parser.add_argument("--picture", metavar="FILE", help=about)


def run(arguments: argparse.Namespace) -> Scale:
    """Measure and predict. Raises ConfigurationError, RunFailed."""
    names_of_terms = ("devices", "network", "device", "batch", "price")
    terms = Terms(**{name: getattr(arguments, name) for name in names_of_terms})
    return scale(arguments.overrides, terms, config_dir=arguments.config_dir, picture=arguments.picture)
