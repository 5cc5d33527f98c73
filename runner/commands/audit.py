"""``manyheads audit``: check by its records whether each epoch of a run took each sample exactly once."""

import argparse

from manyheads.runner.answers.audit.answer import Audit
from manyheads.runner.answers.audit.audit_run import audit
from manyheads.runner.commands import A_RUN

HELP = "prove that a run took each sample exactly once per epoch, and that no validation sample was trained on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument(
        "--records",
        action="store_true",
        help="check the run's records only, without reading data, so samples in several splits are not found",
    )


def run(arguments: argparse.Namespace) -> Audit:
    """Audit a run. Raises ConfigurationError, RunFailed."""
    return audit(arguments.run_folder, reads_data=not arguments.records)
