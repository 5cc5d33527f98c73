"""Parts of shards in object storage: they are fetched into the cache on the local disk, and checked when read.

A part is some adjacent pieces of the index. Each has its own checksum, which is compared whenever it is read, whether
it comes from the server or from the disk.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from manyheads.runner.data.shards.index import ShardIndex
from manyheads.runner.data.shards.stored import TRIES, StoredShards, called
from manyheads.runner.run.objects import StorageError

MOST_KNOWN = 2**16  # parts whose ranges a process remembers


class Range(NamedTuple):
    """A part of a shard: bytes from ``start`` to ``stop``, called ``entry`` in the cache."""

    shard: str
    start: int
    stop: int
    entry: str


class ShardParts:
    """The parts of an index's shards.

    ``start``, ``stop``: the first byte of a row of the index, and the one after its last; both grow within a shard.
    """

    def __init__(
        self, shards: StoredShards, index: ShardIndex, start: Callable[[int], int], stop: Callable[[int], int]
    ):
        self._shards, self._index, self._start, self._stop = shards, index, start, stop
        self.firsts = [0, *accumulate(shard.samples for shard in index.about.shards)]
        self._range = lru_cache(MOST_KNOWN)(self._range_of)

    def of(self, number: int, row: int) -> Range:
        """The part with which a row of shard ``number`` is fetched."""
        return self._range(number, self._start(row) // self._shards.reading.part)

    def fetch_ahead(self, parts: Iterable[Range]) -> None:
        """Request parts without waiting, each once."""
        for part in dict.fromkeys(parts):
            self._shards.storage.fetch_ahead(part.shard, part.start, part.stop, entry=part.entry)

    def read(self, part: Range, start: int, stop: int, is_sound: Callable[[bytes], bool]) -> bytes | None:
        """Bytes of a shard that are within the part; None if they were wrong each time that they were fetched.

        Raises ConfigurationError.
        """
        for attempt in range(TRIES):
            try:
                with self._shards.storage.part(*part[:3], entry=part.entry, again=attempt > 0) as file:
                    content = os.pread(file.fileno(), stop - start, start - part.start)
            except StorageError as error:
                where = f"{part.shard}: bytes {part.start} to {part.stop}"
                raise self._shards.failed(error, where) from None
            if is_sound(content):
                return content
        return None

    def _range_of(self, number: int, position: int) -> Range:
        """The range of all rows that begin in the same part of a shard."""
        shard, size = self._index.about.shards[number], self._shards.reading.part
        rows = range(self.firsts[number], self.firsts[number + 1])
        low, high = (bisect_left(rows, edge * size, key=self._start) for edge in (position, position + 1))
        start, stop = self._start(rows[low]), min(self._stop(rows[max(high - 1, low)]), shard.size)
        entry = called(self._index.root, shard.name, self._index.about.digest, start, stop)
        return Range(shard.name, start, stop, entry)
