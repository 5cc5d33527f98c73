"""``python -m runner list``: the runs that there are."""

import argparse

from manyheads.runner.commands.runs.list_runs import RunList, list_runs

HELP = "list runs and jobs of sweeps: status, metric, what was set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value|folder",
        help="only runs with status=failed, model=resnet18, tags=baseline, ...; folders instead of outputs/",
    )
    parser.add_argument("--sort", metavar="KEY", help="a metric such as val_acc1, the best first; a column; a key")


def run(arguments: argparse.Namespace) -> RunList:
    """The runs. Raises ConfigurationError."""
    return list_runs(arguments.overrides, sort=arguments.sort)
