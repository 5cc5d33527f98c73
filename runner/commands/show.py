"""``python -m runner show``: all about one run, or about what is in a checkpoint."""

import argparse
from pathlib import Path

from manyheads.runner.checkpoint.page import CheckpointPage
from manyheads.runner.commands import A_RUN
from manyheads.runner.commands.runs.show_run import RunPage, run_page
from manyheads.runner.run.checkpoint_places import is_checkpoint

HELP = "show all about one run: where it came from, how it ended, what to do next"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=f"{A_RUN}; or a checkpoint, whose tensors are listed")


def run(arguments: argparse.Namespace) -> RunPage | CheckpointPage:
    """The page. Raises ConfigurationError."""
    if is_checkpoint(Path(arguments.run_folder)):
        from manyheads.runner.checkpoint.rank.listing import contents

        return contents(Path(arguments.run_folder))
    return run_page(arguments.run_folder)
