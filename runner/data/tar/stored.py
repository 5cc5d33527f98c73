"""Samples of tar shards in object storage."""

import tempfile
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.shards.files import CHANGED, ShardParts
from manyheads.runner.data.shards.index import CONTENTS, NAME, TAR, Advance, ShardIndex
from manyheads.runner.data.shards.stored import StoredShards
from manyheads.runner.data.tar.index import TarTable
from manyheads.runner.data.tar.members import Samples
from manyheads.runner.data.tar.walk import BLOCK, members
from manyheads.runner.errors import printable

if TYPE_CHECKING:  # the parent only checks, and starts sooner without it
    import numpy as np


class StoredSamples(Samples):
    """The samples of some shards in object storage."""

    changed = CHANGED

    def __init__(self, index: ShardIndex, numbers: Sequence[int], shards: StoredShards):
        import numpy as np

        super().__init__(index, numbers)
        self._offsets = np.asarray(index.entries)["offset"]  # still mapped into memory
        self._parts = ShardParts(shards, index, self._start, self._stop)
        self.read_ahead = ReadAhead(shards.reading.ahead, self._fetch_ahead)

    def name(self, sample: int, column: int | None = None) -> str:
        number, row = self.row(sample)
        offsets, sizes = (self.index.entries[row][part] for part in ("offset", "size"))
        column = int((offsets > 0).argmax()) if column is None else column
        start, size = int(offsets[column]), int(sizes[column])
        shard, field = printable(self.index.about.shards[number].name), printable(self.index.about.fields[column])
        return f"{self.index.root}/{shard}: bytes {start} to {start + size}, {field} of sample {sample}"

    def _fetch_ahead(self, samples: "np.ndarray") -> None:
        self._parts.fetch_ahead(self._parts.of(*self.row(sample)) for sample in samples.tolist())

    def _block(self, sample: int, column: int, offset: int, size: int, checksum: int) -> bytes:
        number, row = self.row(sample)
        part = self._parts.of(number, row)
        if not part.start <= offset - BLOCK < offset + size <= part.stop:
            raise self.index.changed(number, f"is not what {NAME} says: see {self.name(sample, column)}")
        is_sound = partial(self._is_sound, size=size, checksum=checksum)
        return self._parts.read(part, offset - BLOCK, offset + size, is_sound) or b""

    def _start(self, row: int) -> int:
        """The offset of the header of a sample's first field."""
        return min(offset for offset in self._offsets[row].tolist() if offset) - BLOCK

    def _stop(self, row: int) -> int:
        entry = self.index.entries[row]
        return int((entry["offset"] + entry["size"]).max())


def build(shards: StoredShards, advance: Advance) -> ShardIndex:
    """An index of the shards, with checksums, for which all of them are read once. Raises ConfigurationError."""
    growing = TarTable(checked=CONTENTS)
    for shard in shards.files(TAR):
        with tempfile.TemporaryFile() as file:
            shards.save(shard.name, file)
            growing.add_members(shards.address, shard, members, file.fileno())
        advance()
    return growing.index(shards.address)
