"""``python -m runner convert``: a checkpoint in another format."""

import argparse
from pathlib import Path

from manyheads.runner.commands.runs.folder_sizes import disk_use, size_in_words
from manyheads.runner.errors import ConfigurationError, printable

HELP = "write a checkpoint in another format: one file, a folder of parts, or its weights alone"
FORMATS = ("single", "sharded", "safetensors", "torch")


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


def run(arguments: argparse.Namespace) -> None:
    """Write it, and say where it is."""
    from manyheads.runner.checkpoint.rank.convert_checkpoint import convert

    source = Path(arguments.checkpoint)
    if not source.exists():
        raise ConfigurationError(f"the checkpoint {printable(source)} does not exist.")
    path = convert(source, arguments.to, Path(arguments.out) if arguments.out else None)
    print(f"{printable(path)}: {size_in_words(disk_use(path))}")
