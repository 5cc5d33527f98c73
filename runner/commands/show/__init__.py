"""``python -m runner show``: all about one run, or about what is in a checkpoint."""

import argparse
from pathlib import Path

from manyheads.runner.checkpoint.fetch import at_hand, without_checkpoints
from manyheads.runner.checkpoint.page import CheckpointPage
from manyheads.runner.commands import A_RUN
from manyheads.runner.commands.show.show_run import RunPage, run_page
from manyheads.runner.run.checkpoint_places import is_checkpoint
from manyheads.runner.run.objects import is_address
from manyheads.runner.run.run_folder import RunFolder

HELP = "show all about one run: where it came from, how it ended, what to do next"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "run_folder", metavar="run", help=f"{A_RUN}, or the address of its copy, s3://...; or a checkpoint"
    )


def run(arguments: argparse.Namespace) -> RunPage | CheckpointPage:
    """The page of a run or of a checkpoint. Raises ConfigurationError."""
    if is_checkpoint(Path(arguments.run_folder)):
        from manyheads.runner.checkpoint.rank.listing import contents

        return contents(Path(arguments.run_folder))
    if not is_address(arguments.run_folder):
        return run_page(arguments.run_folder)
    with at_hand(arguments.run_folder, without_checkpoints) as folder:
        return run_page(str(folder)).placed(str(RunFolder(folder)), arguments.run_folder)
