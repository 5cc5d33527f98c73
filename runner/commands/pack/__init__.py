"""``manyheads pack``: write a run's data as shards that other programs can read too."""

import argparse

from manyheads.runner.commands.pack.answer import Packed, Settings
from manyheads.runner.commands.pack.pack_data import pack
from manyheads.runner.errors import WrongValue

HELP = "write photos as tar shards, or text as tokens, for faster and simpler reading"
UNITS = {"MB": 10**6, "GB": 10**9}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source",
        help="where the samples are: a folder of photos or text, the folder of a run, or an option such as data=hf",
    )
    parser.add_argument(
        "shards", help="the new folder of the shards, or an address without objects, s3://bucket/prefix"
    )
    parser.add_argument("overrides", nargs="*", help="changes to the data, such as data.root=/data/photos")
    parser.add_argument("--to", choices=("tar", "tokens"), help="by default tar for images, tokens for text")
    parser.add_argument(
        "--shard-size", metavar="SIZE", default="500MB", help="the largest size of a tar shard; by default 500MB"
    )
    parser.add_argument(
        "--shuffle", metavar="SEED", type=int, help="shuffle the training samples of tar shards, with this seed"
    )
    parser.add_argument(
        "--resize",
        metavar="PIXELS",
        type=int,
        help="scale larger images so that their shorter side has this length, and write them as JPEG",
    )
    parser.add_argument(
        "--quality", type=int, default=90, help="the JPEG quality of resized images, 1 to 100; by default 90"
    )


def run(arguments: argparse.Namespace) -> Packed:
    """Write the shards. Raises ConfigurationError."""
    for flag, value, least, most in (
        ("--resize", arguments.resize, 1, 65_535),
        ("--quality", arguments.quality, 1, 100),
        ("--shuffle", arguments.shuffle, 0, 2**32 - 1),
    ):
        if value is not None and not least <= value <= most:
            raise WrongValue.at(flag, value, f": allowed are integers from {least} to {most}.")
    size = _bytes(arguments.shard_size)
    settings = Settings(arguments.to, size, arguments.shuffle, arguments.resize, arguments.quality)
    return pack(arguments.source, arguments.overrides, arguments.shards, settings)


def _bytes(text: str) -> int:
    number, unit = text[:-2], text[-2:].upper()
    if unit not in UNITS or not number.isdigit() or int(number) == 0:
        raise WrongValue.at("--shard-size", text, ": allowed is a whole number of MB or GB, such as 500MB.")
    return int(number) * UNITS[unit]
