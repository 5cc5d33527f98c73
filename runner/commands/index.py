"""``manyheads index``: write an index beside tar shards, with which each sample takes a single read."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.config.lookup import read_option
from manyheads.runner.data.tar import READING, index_file, stored, table
from manyheads.runner.data.tar.index import NAME, Index, list_shards
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.progress import working
from manyheads.runner.run.storage.address import Address, place_of

HELP = "index tar shards, so that their samples can be read in any order"


@dataclass(frozen=True)
class Indexed(Answer):
    """An index of tar shards, beside them."""

    path: Annotated[str, "the index file"]
    shards: int
    samples: int
    fields: Annotated[list[str], "what samples consist of: the parts of file names after the first dot"]
    classes: Annotated[int | None, "one more than the highest class number; null if not every sample has one"]
    checked: Annotated[str, "what is compared with checksums whenever a sample is read"]

    def show(self) -> None:
        classes = "" if self.classes is None else f", {self.classes} classes"
        print(
            f"{printable(self.path)}: {self.samples:,} samples of {', '.join(self.fields)} in {self.shards:,} shards"
            f"{classes}"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="the folder of the shards, *.tar, or its address, s3://bucket/prefix")
    about = "read all shards, and compare every sample with its checksum whenever it is read"
    parser.add_argument("--contents", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> Indexed:
    """Write the index. Raises ConfigurationError for shards that are damaged."""
    place = place_of(arguments.folder, key="folder")
    if isinstance(place, Path):
        return write_index(place, contents=arguments.contents)
    with working("reading shards", kept="no index was written") as work:
        return _answer(place, stored.write_index(place, own_reading(), work.advance))


def write_index(root: Path, *, contents: bool) -> Indexed:
    """Index the shards below ``root``, and write the index there. Raises ConfigurationError.

    ``contents``: read all shards, and record a checksum of each sample.
    """
    found = list_shards(root)
    with working("indexing shards", len(found), kept="no index was written") as work:
        index = table.build(root, found, work.advance, contents=contents)
        try:
            index_file.write(index, root.resolve() / NAME)
        except OSError as error:
            raise ConfigurationError(f"{printable(root / NAME)} cannot be written: {error.strerror}.") from None
    return _answer(root, index)


def own_reading() -> stored.Reading:
    """The default settings for reading object storage."""
    keys = read_option("data", "tar")
    return stored.Reading.of(**{key: keys[key] for key in READING})


def _answer(root: Path | Address, index: Index) -> Indexed:
    about, path = index.about, str(root / NAME)
    return Indexed(path, len(about.shards), len(index.entries), list(about.fields), about.classes, about.checked)
