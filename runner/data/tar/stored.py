"""Tar shards in object storage: to read a sample, a part of an object is fetched, and kept on the local disk.

A part is some adjacent samples. The index beside the shards has a checksum of every field, which is compared whenever
one is read, whether it comes from the server or from the disk.
"""

import hashlib
import os
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.tar import index_file, table
from manyheads.runner.data.tar.index import CONTENTS, NAME, Advance, Found, Index, check_shards
from manyheads.runner.data.tar.members import Samples
from manyheads.runner.data.tar.walk import BLOCK, members
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.machine.user_folders import user_folder
from manyheads.runner.option.rules import seconds
from manyheads.runner.run.storage.address import Address
from manyheads.runner.run.storage.disk_cache import Settings
from manyheads.runner.run.storage.storage import Object, Storage
from manyheads.runner.run.storage.wire import StorageError

if TYPE_CHECKING:  # the parent only checks, and starts sooner without it
    import numpy as np

TRIES = 3  # for content that does not match its checksum
MOST_KNOWN = 2**16  # parts whose ranges a process remembers


class Range(NamedTuple):
    """A part of a shard: bytes from ``start`` to ``stop``, called ``entry`` in the cache."""

    shard: str
    start: int
    stop: int
    entry: str


@dataclass(frozen=True)
class Reading:
    """How object storage is read.

    ``part``: bytes of adjacent samples that are fetched together; ``ahead``: batches that are fetched ahead;
    ``retry_for``: seconds for which a failing request is repeated.
    """

    cache: Settings
    part: int
    ahead: int
    retry_for: float

    @classmethod
    def of(
        cls, *, cache_folder: str | None, cache_gb: float, fetch_mb: float, read_ahead: int, retry_for: float | str
    ) -> "Reading":
        """The settings from these keys of data=tar. Raises ConfigurationError for a user without a home."""
        own = user_folder("cache")
        if cache_folder is None and own is None:
            raise ConfigurationError("data.cache_folder: you have no home folder. Set it.", key="data.cache_folder")
        folder = Path(cache_folder).expanduser() if cache_folder else own / "manyheads" / "storage"  # type: ignore[operator]
        cache = Settings(folder, int(cache_gb * 10**9))
        return cls(cache, int(fetch_mb * 10**6), read_ahead, seconds(retry_for) or 0.0)


class Shards:
    """The shards below an address. Raises ConfigurationError if object storage cannot be used."""

    def __init__(self, address: Address, reading: Reading):
        self.address, self.reading = address, reading
        try:
            self.storage = Storage(address, retry_for=reading.retry_for, cache=reading.cache)
        except StorageError as error:
            raise self.failed(error) from None

    @cached_property
    def objects(self) -> dict[str, Object]:
        """All objects below the address. Raises ConfigurationError."""
        try:
            return {each.name: each for each in self.storage.list()}
        except StorageError as error:
            raise self.failed(error) from None

    def found(self) -> list[Found]:
        """The tar files, by name. Raises ConfigurationError if there are none."""
        found = [Found(each.name, each.size, ()) for each in self.objects.values() if each.name.endswith(".tar")]
        if not found:
            raise ConfigurationError.at(
                "data.root", self.address, ": no object below it ends in .tar. Set it to the address of the shards."
            )
        return found

    def index(self) -> Index:
        """The index beside the shards. Raises ConfigurationError if it is missing, damaged or not of these shards."""
        found, about = self.found(), self.objects.get(NAME)
        command = invocation.command("index", self.address)
        if about is None:
            raise ConfigurationError.at(
                "data.root", self.address, f": there is no index beside the shards. Write it once: {command}"
            )
        entry = _called(self.address, *about)
        for attempt in range(TRIES):
            try:
                with self.storage.part(NAME, 0, about.size, entry=entry, again=attempt > 0) as file:
                    file.seek(0)
                    index = index_file.sound(self.address, file)
            except StorageError as error:
                raise self.failed(error, NAME) from None
            if index is not None:
                break
        else:
            raise ConfigurationError.at(
                "data.root",
                self.address,
                f": {NAME} is damaged, or was written by another version. Index again: {command}",
            )
        check_shards(index, found)
        if index.about.checked != CONTENTS:
            raise ConfigurationError.at(
                "data.root", self.address, f": {NAME} has no checksums of contents. Index again: {command}"
            )
        return index

    def content_of(self, name: str) -> bytes:
        """A small object's content. Raises ConfigurationError."""
        try:
            return self.storage.read(name)
        except StorageError as error:
            raise self.failed(error, name) from None

    def build(self, advance: Advance) -> Index:
        """An index of the shards, with checksums, for which all of them are read once. Raises ConfigurationError."""
        growing = table.Table(checked=CONTENTS)
        for each in self.found():
            try:
                with tempfile.TemporaryFile() as file:
                    self.storage.save(each.name, file)
                    growing.add_members(self.address, each, members, file.fileno())
            except StorageError as error:
                raise self.failed(error, each.name) from None
            advance()
        return growing.index(self.address)

    def store(self, name: str, file: IO[bytes]) -> None:
        """Put a file beside the shards. Raises ConfigurationError."""
        try:
            self.storage.store(name, file)
        except StorageError as error:
            raise self.failed(error, name) from None

    def failed(self, error: StorageError, what: str = "") -> ConfigurationError:
        """The error for a failed request. ``what``: its object and range, if it had one."""
        about = f" {printable(what)}:" if what else ""
        return ConfigurationError.at("data.root", self.address, f":{about} {error}.")


class StoredSamples(Samples):
    """The samples of some shards in object storage."""

    changed = "has changed since it was indexed, or is damaged on the way"

    def __init__(self, index: Index, numbers: Sequence[int], shards: Shards):
        import numpy as np

        super().__init__(index, numbers)
        self.shards = shards
        self.read_ahead = ReadAhead(shards.reading.ahead, self._fetch_ahead)
        self._firsts = [0, *accumulate(each.samples for each in index.about.shards)]
        self._offsets = np.asarray(index.entries)["offset"]  # still mapped into memory
        self._range = lru_cache(MOST_KNOWN)(self._found_range)

    def name(self, sample: int, column: int | None = None) -> str:
        number, row = self.row(sample)
        offsets, sizes = (self.index.entries[row][part] for part in ("offset", "size"))
        column = int((offsets > 0).argmax()) if column is None else column
        start, size = int(offsets[column]), int(sizes[column])
        shard = printable(self.index.about.shards[number].name)
        field = printable(self.index.about.fields[column])
        return f"{self.index.root}/{shard}: bytes {start} to {start + size}, {field} of sample {sample}"

    def _fetch_ahead(self, samples: "np.ndarray") -> None:
        for each in dict.fromkeys(self._range_of(*self.row(sample)) for sample in samples.tolist()):
            self.shards.storage.fetch_ahead(each.shard, each.start, each.stop, entry=each.entry)

    def _block(self, sample: int, column: int, offset: int, size: int, checksum: int) -> bytes:
        number, row = self.row(sample)
        part = self._range_of(number, row)
        if not part.start <= offset - BLOCK < offset + size <= part.stop:
            raise self.index.changed(number, f"is not what {NAME} says: see {self.name(sample, column)}")
        block = b""
        for attempt in range(TRIES):
            try:
                with self.shards.storage.part(*part[:3], entry=part.entry, again=attempt > 0) as file:
                    block = os.pread(file.fileno(), BLOCK + size, offset - BLOCK - part.start)
            except StorageError as error:
                where = f"bytes {part.start} to {part.stop}"
                raise self.shards.failed(error, f"{part.shard}: {where}") from None
            if self._is_sound(block, size, checksum):
                break
        return block

    def _range_of(self, number: int, row: int) -> Range:
        """The part of a shard that a sample is fetched with."""
        return self._range(number, self._start(row) // self.shards.reading.part)

    def _found_range(self, number: int, part: int) -> Range:
        """The range of all samples that begin in the same part of a shard."""
        shard, size = self.index.about.shards[number], self.shards.reading.part
        rows = range(self._firsts[number], self._firsts[number + 1])
        low, high = (bisect_left(rows, each * size, key=self._start) for each in (part, part + 1))
        last = self.index.entries[rows[max(high - 1, low)]]
        start = self._start(rows[low])
        stop = min(int((last["offset"] + last["size"]).max()), shard.size)
        entry = _called(self.index.root, shard.name, self.index.about.digest, start, stop)
        return Range(shard.name, start, stop, entry)

    def _start(self, row: int) -> int:
        """The offset of the header of a sample's first field."""
        return min(offset for offset in self._offsets[row].tolist() if offset) - BLOCK


def write_index(address: Address, reading: Reading, advance: Advance) -> Index:
    """Index the shards below an address, and put the index beside them. Raises ConfigurationError."""
    shards = Shards(address, reading)
    with shards.storage, tempfile.TemporaryDirectory() as own:
        index, path = shards.build(advance), Path(own).resolve() / NAME
        index_file.write(index, path)
        with open(path, "rb") as written:
            shards.store(NAME, written)
        return index


def _called(*about: object) -> str:
    """A name for the cache, which identifies what it is about."""
    return hashlib.sha256("\0".join(map(str, about)).encode(errors="surrogateescape")).hexdigest()
