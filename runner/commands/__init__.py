"""One module for each command of ``python -m runner``, with HELP, add_arguments and run."""

import argparse

SHARED = ("runs",)  # packages that several commands share

A_RUN = "the folder of a run, such as outputs/2026-01-31/12-00-00"


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add the argument that selects a run's weights."""
    parser.add_argument("--weights", metavar="best|last", help="which weights; by default the best if the run has them")
