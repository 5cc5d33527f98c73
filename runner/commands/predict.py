"""``python -m runner predict``: the classes of image files."""

import argparse
from pathlib import Path

from manyheads.runner.commands import A_RUN, add_weights
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.trust.trust_store import split_typed

HELP = "write the predicted classes of image files into a table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("images", nargs="+", help="image files, or folders of them; and trust=[my_package]")
    parser.add_argument("--out", default="predictions.csv", help="the table (predictions.csv)")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda, cuda:1")
    add_weights(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the table. Files that cannot be read are named, and do not change the exit code."""
    packages, images = split_typed(arguments.images)
    if not images:
        raise ConfigurationError("there are no images to predict. Name image files, or folders of them.")
    from manyheads.runner.serve.rank.predict_images import predict_files
    from manyheads.runner.serve.rank.trained import load

    trained = load(arguments.run_folder, which=arguments.weights, trust=packages)
    files, unreadable = predict_files(trained, images, Path(arguments.out), device=arguments.device)
    left = f", of which {unreadable:,} could not be read" if unreadable else ""
    print(f"{printable(arguments.out)}: {files:,} files{left}, with the {trained.which} weights of {trained.folder}")
