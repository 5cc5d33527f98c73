"""An index of shards: where each piece of them is, with a checksum.

Pieces of tar shards are the fields of samples, so that any sample can be read directly (tar/index.py); those of other
files are blocks (blocks.py). ``manyheads index`` and ``manyheads pack`` write it beside the shards.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.objects import Address

if TYPE_CHECKING:  # the parent of other runs starts without it
    import numpy as np

NAME = ".manyheads-index"
NONE, HEADERS, CONTENTS, BLOCKS = "none", "headers", "headers and contents", "blocks"  # what checksums cover
Advance = Callable[[], None]  # called when another shard has been read


class ShardKind(NamedTuple):
    """A kind of shards. ``name``: of the option that reads them; ``checked``: what checksums must cover."""

    name: str
    suffixes: tuple[str, ...]
    checked: str = BLOCKS


TAR = ShardKind("tar", (".tar",), CONTENTS)
PARQUET = ShardKind("parquet", (".parquet",))
TOKENS = ShardKind("tokens", (".bin", ".idx"))
KINDS = (TAR, PARQUET, TOKENS)  # if there are several below a root, the first is indexed


class ShardFile(NamedTuple):
    """A shard below the root. ``state``: its inode, and the times of its last changes."""

    name: str
    size: int
    state: tuple[int, ...]


class Shard(NamedTuple):
    """A shard in an index: its name below the root, its size in bytes, and the number of its samples, or blocks."""

    name: str
    size: int
    samples: int


@dataclass(frozen=True)
class About:
    """What an index says about its shards.

    ``fields``: of samples, or for blocks the name of their kind; ``checked``: what its checksums cover; ``classes``:
    one more than the highest class number, None if not every sample has one, or than the highest token;
    ``unlabelled``: the first sample that has none; ``state``: of each shard, for an index in the cache; ``digest``: the
    sha256 of the index's content, once it has been written.
    """

    shards: tuple[Shard, ...]
    fields: tuple[str, ...]
    checked: str
    classes: int | None
    unlabelled: str = ""
    state: tuple[tuple[int, ...], ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class ShardIndex:
    """The index of all shards below ``root``.

    ``entries``: ENTRY (samples, fields), offset 0 for a missing field, or (blocks, 1); ``targets``: class numbers
    (samples,), or the highest token of each block.
    """

    root: Path | Address
    about: About
    entries: "np.ndarray"
    targets: "np.ndarray | None"

    def changed(self, number: int, what: str) -> ConfigurationError:
        """The error for a shard that differs from what was indexed."""
        return outdated(self.root, f"the shard {printable(self.about.shards[number].name)} {what}")


def check_shards(index: ShardIndex, files: list[ShardFile]) -> None:
    """Raises ConfigurationError unless the index beside the shards matches those that were found."""
    here = {file.name: file.size for file in files}
    for number, shard in enumerate(index.about.shards):
        if shard.name not in here:
            raise index.changed(number, "is missing, but was there when the shards were indexed")
        if here[shard.name] != shard.size:
            was = f"has {here[shard.name]:,} bytes, and had {shard.size:,} when it was indexed"
            raise index.changed(number, was)
    if added := sorted(here.keys() - {indexed.name for indexed in index.about.shards}):
        raise outdated(index.root, f"the shard {printable(added[0])} was added after the others were indexed")


def outdated(root: Path | Address, what: str) -> ConfigurationError:
    """The error for an index that does not fit the shards. ``what``: says why."""
    command = invocation.command("index", root)
    return ConfigurationError.at("data.root", root, f": {what}. If that is right, index again: {command}")


def crc(content: bytes) -> int:
    """CRC-32C, which processors compute at several gigabytes per second."""
    import google_crc32c  # which few runs need

    return int(google_crc32c.value(content))
