"""``python -m runner publish``: publish finished runs to a tracker."""

import argparse

from manyheads.launchers.publishing.afterwards import PublishedRuns, publish
from manyheads.runner.errors import ConfigurationError

HELP = "publish runs or sweeps to a tracker such as mlflow or wandb; what has been sent is not sent again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides", nargs="+", metavar="run|key=value", help="folders, and keys such as logger.mlflow.experiment=mine"
    )
    parser.add_argument("--to", action="append", default=[], metavar="TRACKER", help="by default each run's own")


def run(arguments: argparse.Namespace) -> PublishedRuns:
    """Publish. Raises ConfigurationError."""
    keys = [word for word in arguments.overrides if word.startswith(("logger.", "+logger.")) and "=" in word]
    paths = [word for word in arguments.overrides if word not in keys]
    if not paths:
        raise ConfigurationError("publish which runs? Name their folders, or a sweep's.")
    return publish(paths, to=arguments.to, overrides=keys)
