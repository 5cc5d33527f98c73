"""Reads the fields of samples in tar shards where the index says they are, and checks them against it."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from manyheads.runner.data.links import MOST_BYTES, boundary, opened
from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.samples import CorruptSample, StoredFile
from manyheads.runner.data.shards.index import CONTENTS, HEADERS, ShardIndex, crc
from manyheads.runner.data.tar.walk import BLOCK, Unsound, is_header, members
from manyheads.runner.errors import ConfigurationError, printable

if TYPE_CHECKING:  # the parent only checks, and starts sooner without it
    import numpy as np

MOST_OPEN = 128  # files that a process keeps open
AHEAD = 2  # batches


class Samples:
    """The samples of some shards, one after the other. ``numbers``: of these shards in the index."""

    read_ahead: ReadAhead | None = None
    changed: ClassVar[str] = "has changed since it was indexed"

    def __init__(self, index: ShardIndex, numbers: Sequence[int]):
        self.index, self.numbers = index, tuple(numbers)
        self.within = boundary(index.root) if isinstance(index.root, Path) else None
        firsts = [0, *accumulate(shard.samples for shard in index.about.shards)]
        self._first = [firsts[number] for number in self.numbers]  # sample in the index
        self._starts = [0, *accumulate(index.about.shards[number].samples for number in self.numbers)]
        self._opened = lru_cache(maxsize=MOST_OPEN)(self._open)
        if hasattr(os, "posix_fadvise"):
            self.read_ahead = ReadAhead(AHEAD, self._announce)

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, sample: int) -> tuple[int, int]:
        """The number of a sample's shard, and of the sample in the index."""
        position = bisect_right(self._starts, sample) - 1
        return self.numbers[position], self._first[position] + sample - self._starts[position]

    def content(self, sample: int, columns: Sequence[int]) -> StoredFile | None:
        """The content of the first of these fields that a sample has; None if it has none.

        Raises ConfigurationError if the shard differs from what was indexed, and OSError.
        """
        number, row = self.row(sample)
        for column in columns:
            offset, size, checksum = self.index.entries[row, column].item()
            if offset:
                break
        else:
            return None
        if size > MOST_BYTES:
            raise ConfigurationError(f"{self.name(sample, column)} has {size:,} bytes. Allowed: {MOST_BYTES:,}.")
        block = self._block(sample, column, offset, size, checksum)
        if not self._is_sound(block, size, checksum):
            raise self.index.changed(number, f"{self.changed}: see {self.name(sample, column)}")
        content = StoredFile(memoryview(block)[BLOCK:])
        content.origin = partial(self.name, sample, column)
        return content

    def _block(self, sample: int, column: int, offset: int, size: int, checksum: int) -> bytes:
        """The header and content of a field, which may differ from what was indexed."""
        return os.pread(self._opened(self.row(sample)[0]).handle, BLOCK + size, offset - BLOCK)

    def _announce(self, samples: "np.ndarray") -> None:
        """Have the operating system read samples into its page cache, without waiting for it.

        By itself it reads ahead only what is read in order. What fails here fails again when the sample is read.
        """
        for sample in samples.tolist():
            number, row = self.row(sample)
            for offset, size, _ in self.index.entries[row].tolist():
                with suppress(OSError, ConfigurationError):
                    if offset:
                        handle = self._opened(number).handle
                        os.posix_fadvise(handle, offset - BLOCK, BLOCK + size, os.POSIX_FADV_WILLNEED)

    def name(self, sample: int, column: int | None = None) -> str:
        """Shard, key and field of a file, for messages; by default of the first file that the sample has."""
        number, row = self.row(sample)
        offsets = self.index.entries[row]["offset"]
        offset = int(offsets[offsets > 0].min() if column is None else offsets[column])
        key = next((name for at, name in self._files(number) if at == offset), f"sample {sample}")
        return f"{printable(self._path(number))}: {printable(key)}"

    def _files(self, number: int) -> Iterator[tuple[int, str]]:
        """Offset and name of each file in a shard, for messages; as far as the shard can still be read."""
        with suppress(OSError, Unsound), opened(self._path(number), self.within) as handle:
            for member in members(handle, os.fstat(handle).st_size):
                yield member.offset, f"{member.key}.{member.field}"

    def _is_sound(self, block: bytes, size: int, checksum: int) -> bool:
        if len(block) != BLOCK + size:
            return False
        checked = self.index.about.checked
        if checked in (CONTENTS, HEADERS):
            return crc(block if checked == CONTENTS else block[:BLOCK]) == checksum
        return is_header(block[:BLOCK], size)

    def _path(self, number: int) -> Path:
        """The path of a shard."""
        assert isinstance(self.index.root, Path)
        return self.index.root / self.index.about.shards[number].name

    def _open(self, number: int) -> "_Handle":
        try:
            with opened(self._path(number), self.within) as handle:
                return _Handle(os.dup(handle))
        except FileNotFoundError:
            raise self.index.changed(number, "is missing, but was there when the shards were indexed") from None


class _Handle:
    """A descriptor that is closed with the last reference to it, so that no other thread finds it closed."""

    def __init__(self, handle: int):
        self.handle = handle

    def __del__(self) -> None:
        os.close(self.handle)


class TarContents(Sequence[StoredFile]):
    """The content of one field of each sample: the first of ``columns`` that it has."""

    def __init__(self, samples: Samples, columns: Sequence[int]):
        self.samples, self.columns = samples, tuple(columns)
        self.read_ahead = samples.read_ahead

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        sample = range(len(self))[index]
        if (content := self.samples.content(sample, self.columns)) is None:
            fields = ", ".join(self.samples.index.about.fields[column] for column in self.columns)
            raise CorruptSample(self.samples.name(sample), f"it has none of the fields {fields}")
        return content


class Targets(Sequence[int]):
    """The class number of each sample."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        targets = self.samples.index.targets
        assert targets is not None
        return int(targets[self.samples.row(range(len(self))[index])[1]])
