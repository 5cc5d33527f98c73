"""An index of files by blocks of a fixed size, with a checksum of each, for reading them in object storage."""

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.data.shards.files import BLOCK, File
from manyheads.runner.data.shards.index import BLOCKS, ENTRY, NAME, About, Shard, ShardIndex, ShardKind, crc, outdated
from manyheads.runner.run.objects import Address

if TYPE_CHECKING:  # the parent, which only checks, starts without it
    import numpy as np

AT_ONCE = 2**24  # bytes that are read at once


class BlockTable:
    """An index that grows file by file."""

    def __init__(self) -> None:
        self._shards, self._checksums, self._highest = list[Shard](), array("I"), array("q")

    def add(self, name: str, file: File, highest: Callable[[int, bytes], int] | None = None) -> None:
        """Add a file, all of which is read. Raises OSError, and what ``highest`` raises.

        ``highest``: returns the highest number in a block that begins at a byte; -1 if it has none.
        """
        for first in range(0, file.size, AT_ONCE):
            read = file.read(first, first + AT_ONCE)
            for at in range(0, len(read), BLOCK):
                block = read[at : at + BLOCK]
                self._checksums.append(crc(block))
                self._highest.append(-1 if highest is None else highest(first + at, block))
        self._shards.append(Shard(name, file.size, _count(file.size)))

    def index(self, root: Path | Address, kind: ShardKind) -> ShardIndex:
        """The index of all added files, in the order of their names."""
        import numpy as np

        firsts = np.cumsum([0, *(shard.samples for shard in self._shards)])
        order = sorted(range(len(self._shards)), key=lambda number: self._shards[number].name)
        shards = tuple(self._shards[number] for number in order)
        rows = np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in order])
        entries = _places(shards)
        entries["checksum"][:, 0] = np.asarray(self._checksums)[rows]
        highest = np.asarray(self._highest)[rows]
        above = int(highest.max(initial=-1)) + 1
        targets = np.minimum(highest, 2**31 - 1).astype(np.int32) if above else None
        return ShardIndex(root, About(shards, (kind.name,), BLOCKS, above or None), entries, targets)


def check_places(index: ShardIndex) -> None:
    """Raises ConfigurationError unless the blocks are where they belong: the index may have been sent."""
    shards = index.about.shards
    expected = _places(shards) if all(shard.samples == _count(shard.size) for shard in shards) else None
    if expected is None or any((index.entries[part] != expected[part]).any() for part in ("offset", "size")):
        raise outdated(index.root, f"{NAME} is damaged, or was written by another version")


def _places(shards: tuple[Shard, ...]) -> "np.ndarray":
    import numpy as np

    entries = np.zeros((sum(shard.samples for shard in shards), 1), ENTRY)
    row = 0
    for shard in shards:
        offsets = np.arange(shard.samples, dtype=np.int64) * BLOCK
        rows = slice(row, row + shard.samples)
        entries["offset"][rows, 0] = offsets
        entries["size"][rows, 0] = np.minimum(shard.size - offsets, BLOCK)
        row += shard.samples
    return entries


def _count(size: int) -> int:
    return -(-size // BLOCK)
