"""``manyheads index``: write an index beside shards, for reading them in object storage, and tar in any order."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.config.lookup import read_option
from manyheads.runner.data.indexing import index_blocks, index_stored, kind_of, names_below
from manyheads.runner.data.shards.index import BLOCKS, NAME, TAR, ShardIndex, save_index
from manyheads.runner.data.shards.stored import Reading, StoredShards
from manyheads.runner.data.tar.index import build, list_shards
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import scratch
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.objects import Address, place_of
from manyheads.runner.run.progress import Work, working
from manyheads.runner.wording import counted

HELP = "index shards, so that they can be read in object storage, and the samples of tar shards in any order"


@dataclass(frozen=True)
class Indexed(Answer):
    """An index of shards, beside them."""

    path: Annotated[str, "the index file"]
    shards: int
    samples: Annotated[int, "the number of samples; for Parquet and token files, of blocks with a checksum"]
    fields: Annotated[list[str], "what samples consist of: the parts of file names after the first dot"]
    classes: Annotated[
        int | None,
        "one more than the highest class number, or than the highest token; null if not every sample has one",
    ]
    checked: Annotated[str, "what is compared with checksums whenever it is read"]

    def show(self) -> None:
        what = f"{counted(self.samples, 'sample')} of {printable(', '.join(self.fields))}"
        classes = "" if self.classes is None else f", {counted(self.classes, 'class', 'classes')}"
        if self.checked == BLOCKS:
            what = counted(self.samples, "checksum of a block", "checksums of blocks")
            classes = "" if self.classes is None else f", tokens below {self.classes}"
        print(f"{printable(self.path)}: {what} in {counted(self.shards, 'shard')}{classes}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "folder", help="the folder of the shards, *.tar, *.parquet or *.bin, or its address, s3://bucket/prefix"
    )
    parser.add_argument(
        "--contents",
        action="store_true",
        help="read all tar shards, and compare every sample with its checksum whenever it is read",
    )


def run(arguments: argparse.Namespace) -> Indexed:
    """Write the index. Raises ConfigurationError for shards that are damaged."""
    shards = place_of(arguments.folder, key="folder")
    if isinstance(shards, Address):
        return _index_address(shards)
    if not shards.is_dir():
        raise ConfigurationError.at("folder", shards, ": there is no such folder.")
    return write_index(shards, contents=arguments.contents)


def write_index(root: Path, *, contents: bool) -> Indexed:
    """Index the shards below ``root``, and write the index there. Raises ConfigurationError.

    ``contents``: read all tar shards, and record a checksum of each sample.
    """
    names = names_below(root)
    with working("indexing shards", kept="no index was written") as work:
        index = _index(root, names, work, contents=contents)
        try:
            save_index(index, root.resolve() / NAME)
        except OSError as error:
            raise ConfigurationError(f"{printable(root / NAME)} cannot be written: {error.strerror}.") from None
    return _answer(root, index)


def own_reading() -> Reading:
    """The default settings for reading object storage."""
    return Reading.of(read_option("data", "tar"))


def _index(root: Path, names: list[str], work: Work, *, contents: bool) -> ShardIndex:
    if (kind := kind_of(names, root)) is TAR:
        return build(root, list_shards(root), work.advance, contents=contents)
    return index_blocks(root, [name for name in names if name.endswith(kind.suffixes)], kind, work.advance)


def _index_address(address: Address) -> Indexed:
    with (
        working("reading shards", kept="no index was written") as work,
        StoredShards(address, own_reading(), key="folder") as shards,
        scratch.folder() as folder,
    ):
        index, path = index_stored(shards, work.advance), folder.resolve() / NAME
        save_index(index, path)
        with open(path, "rb") as written:
            shards.store(NAME, written)
    return _answer(address, index)


def _answer(root: Path | Address, index: ShardIndex) -> Indexed:
    about, path = index.about, str(root / NAME)
    fields = [] if about.checked == BLOCKS else list(about.fields)
    return Indexed(path, len(about.shards), len(index.entries), fields, about.classes, about.checked)
