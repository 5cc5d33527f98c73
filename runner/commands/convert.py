"""``python -m runner convert``: write a checkpoint in another format."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.records.find import disk_use
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.progress import working
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import size_in_words

HELP = "write a checkpoint in another format: one file, a folder of parts, or its weights alone"
FORMATS = ("single", "sharded", "safetensors", "torch")


@dataclass(frozen=True)
class Converted(Answer):
    """A checkpoint in another format."""

    path: Annotated[Path, "the new file or folder"]
    bytes: int

    def show(self) -> None:
        print(f"{printable(RunFolder(self.path))}: {size_in_words(self.bytes)}")  # as a user would type it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("checkpoint", help="such as outputs/<run>/checkpoints/last.pt, or the folder of a sharded one")
    parser.add_argument(
        "--to",
        required=True,
        choices=FORMATS,
        help="single, sharded: everything, to resume from; safetensors, torch: the weights by name",
    )
    parser.add_argument("--out", help="the new file or folder; by default next to the checkpoint")


def run(arguments: argparse.Namespace) -> Converted:
    """Write the checkpoint in the other format. Raises ConfigurationError."""
    if not (source := Path(arguments.checkpoint)).exists():
        raise ConfigurationError(f"the checkpoint {printable(source)} does not exist.")
    with working("converting", kept="no checkpoint was written"):
        from manyheads.runner.checkpoint.rank.convert_checkpoint import convert

        path = convert(source, arguments.to, Path(arguments.out) if arguments.out else None)
    return Converted(path, disk_use(path))
