"""Files of which any bytes can be read: on the local disk, or in object storage, where each block has a checksum.

In object storage, parts of shards are fetched into the cache on the local disk, and checked when read. A part is some
adjacent pieces of the index. Each has its own checksum, which is compared whenever it is read, whether it comes from
the server or from the disk.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from manyheads.runner.data.links import opened
from manyheads.runner.data.shards.index import ShardIndex, crc
from manyheads.runner.data.shards.stored import TRIES, StoredShards, called
from manyheads.runner.errors import printable

if TYPE_CHECKING:  # the parent, which only checks, starts without it
    import numpy as np

BLOCK = 2**16  # bytes that share a checksum; small, since all of them are read for any of them
MOST_KNOWN = 2**16  # parts whose ranges a process remembers
CHANGED = "has changed since it was indexed, or was damaged on the way"


class File(Protocol):
    """A file. ``name``: for messages; ``size``: in bytes."""

    name: str
    size: int

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, or to the end of the file. Raises OSError or ConfigurationError."""

    def array(self, dtype: str, start: int, count: int) -> Any:
        """``count`` values from byte ``start`` on, (count,), which are read when they are sliced."""


class LocalFile:
    """A file on the local disk. ``within``: the boundary that it must be in. Raises ConfigurationError, OSError."""

    def __init__(self, path: Path, within: str | None, name: str | None = None):
        self.path, self.within = path, within
        self.name = printable(name or path)
        with opened(path, within) as handle:
            self.size = os.fstat(handle).st_size

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, or to the end of the file. Raises OSError."""
        with opened(self.path, self.within) as handle, open(handle, "rb", closefd=False) as file:
            file.seek(start)
            return file.read(stop - start)

    def array(self, dtype: str, start: int, count: int) -> "np.ndarray":
        """``count`` values from byte ``start`` on, (count,), mapped into memory."""
        import numpy as np

        if not count:
            return np.zeros(0, dtype)
        with opened(self.path, self.within) as handle, open(handle, "rb", closefd=False) as file:
            return np.memmap(file, dtype, "r", start, (count,))


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
            with (
                self._shards.requests(f"{part.shard}: bytes {part.start} to {part.stop}"),
                self._shards.storage.part(*part[:3], entry=part.entry, again=attempt > 0) as file,
            ):
                content = os.pread(file.fileno(), stop - start, start - part.start)
            if is_sound(content):
                return content
        return None

    def _range_of(self, number: int, position: int) -> Range:
        """The range of all rows that begin in the same part of a shard."""
        shard, size = self._index.about.shards[number], self._shards.reading.part
        rows = range(self.firsts[number], self.firsts[number + 1])
        low, high = (bisect_left(rows, edge * size, key=self._start) for edge in (position, position + 1))
        start, stop = self._start(rows[low]), min(self._stop(rows[max(high - 1, low)]), shard.size)
        return Range(
            shard.name, start, stop, called(self._index.root, shard.name, self._index.about.digest, start, stop)
        )


class ObjectFile:
    """A file in object storage: shard ``number`` of an index of blocks."""

    def __init__(self, index: ShardIndex, number: int, parts: ShardParts):
        shard = index.about.shards[number]
        self.name, self.size = printable(f"{index.root}/{shard.name}"), shard.size
        self._index, self._number, self._parts = index, number, parts
        self._first = parts.firsts[number]

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, or to the end of the file.

        Raises ConfigurationError, also for blocks that differ from what was indexed.
        """
        blocks, at, last = [], start // BLOCK, -(-min(stop, self.size) // BLOCK)
        while at < last:
            part = self._parts.of(self._number, self._first + at)
            until = min(last, -(-part.stop // BLOCK))
            begin, end = at * BLOCK, min(until * BLOCK, self.size)
            content = self._parts.read(part, begin, end, partial(self._is_sound, at, until))
            if content is None:
                raise self._index.changed(self._number, f"{CHANGED}: see bytes {begin} to {end}")
            blocks.append(content)
            at = until
        before = start % BLOCK
        return b"".join(blocks)[before : before + stop - start]

    def array(self, dtype: str, start: int, count: int) -> "StoredArray":
        """``count`` values from byte ``start`` on, (count,), which are read when they are sliced."""
        return StoredArray(self, dtype, start, count)

    def fetch_ahead(self, start: int, stop: int) -> None:
        """Request bytes without waiting."""
        at, parts = start, []
        while at < min(stop, self.size):
            parts.append(self._parts.of(self._number, self._first + at // BLOCK))
            at = parts[-1].stop
        self._parts.fetch_ahead(parts)

    def _is_sound(self, at: int, until: int, content: bytes) -> bool:
        if len(content) != min(until * BLOCK, self.size) - at * BLOCK:
            return False
        rows = range(self._first + at, self._first + until)
        expected = self._index.entries["checksum"][rows.start : rows.stop, 0].tolist()
        blocks = (content[start : start + BLOCK] for start in range(0, len(content), BLOCK))
        return all(crc(block) == checksum for block, checksum in zip(blocks, expected, strict=True))


class StoredArray:
    """Values in a file in object storage, read by slices without steps."""

    def __init__(self, file: ObjectFile, dtype: str, start: int, count: int):
        self._file, self._dtype, self._start, self._count = file, dtype, start, count
        self._width = int(dtype[-1])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, wanted: slice) -> "np.ndarray":
        import numpy as np

        return np.frombuffer(self._in_bytes(wanted, self._file.read), self._dtype)

    def fetch_ahead(self, wanted: slice) -> None:
        """Request values without waiting."""
        self._in_bytes(wanted, self._file.fetch_ahead)

    def _in_bytes(self, wanted: slice, do: Callable[[int, int], Any]) -> Any:
        first, last, _ = wanted.indices(self._count)
        return do(self._start + first * self._width, self._start + max(first, last) * self._width)
