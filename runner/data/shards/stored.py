"""Shards in object storage: how they are read; lists them, reads their index, and puts files beside them."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar

from manyheads.runner.data.shards.index import BLOCKS, NAME, ShardFile, ShardIndex, ShardKind, check_shards, sound_index
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.option.rules import DURATION, PLACE, number, seconds, whole
from manyheads.runner.run.objects import Address, Cache, Object, StorageError, opened

TRIES = 3  # for content that does not match its checksum


@dataclass(frozen=True)
class Reading:
    """How object storage is read: the keys of every option that does so, and what they mean.

    ``part``: bytes of adjacent samples that are fetched together; ``ahead``: batches that are fetched ahead;
    ``retry_for``: seconds for which a failing request is repeated.
    """

    rules: ClassVar = {
        "cache_folder": PLACE,
        "cache_gb": number(above=0),
        "fetch_mb": number(above=0),
        "read_ahead": whole(0),
        "retry_for": DURATION,
    }
    keys: ClassVar[tuple[str, ...]] = (*rules,)
    cache: Cache
    part: int
    ahead: int
    retry_for: float

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> "Reading":
        """The settings from an option's keys. Raises ConfigurationError for a user without a home."""
        folder = keys["cache_folder"]
        cache_path = Path(folder).expanduser() if folder else cache_folder("storage")
        if cache_path is None:
            raise ConfigurationError(
                "data.cache_folder: you have no home folder, or its cache can't be used. Set it.",
                key="data.cache_folder",
            )
        cache = Cache(cache_path, int(keys["cache_gb"] * 10**9))
        return cls(cache, int(keys["fetch_mb"] * 10**6), keys["read_ahead"], seconds(keys["retry_for"]) or 0.0)


class StoredShards:
    """The shards below an address; as a context, closed at its end. ``key``: what names the address, for errors.

    Raises ConfigurationError if object storage cannot be used.
    """

    def __init__(self, address: Address, reading: Reading, *, key: str = "data.root"):
        self.address, self.reading, self.key = address, reading, key
        with self.requests():
            self.storage = opened(address, retry_for=reading.retry_for, cache=reading.cache)

    def __enter__(self) -> "StoredShards":
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close()

    @cached_property
    def objects(self) -> dict[str, Object]:
        """All objects below the address. Raises ConfigurationError."""
        with self.requests():
            return {shard.name: shard for shard in self.storage.list()}

    def files(self, kind: ShardKind) -> list[ShardFile]:
        """The shards of this kind, by name. Raises ConfigurationError if there are none."""
        names = [name for name in self.objects if name.endswith(kind.suffixes)]
        if not names:
            about = f": no object below it ends in {' or '.join(kind.suffixes)}. Set it to the address of the shards."
            raise ConfigurationError.at(self.key, self.address, about)
        return [ShardFile(name, self.objects[name].size, ()) for name in names]

    def index(self, kind: ShardKind) -> ShardIndex:
        """The index beside the shards. Raises ConfigurationError if it is missing, damaged or not of these shards."""
        files, about = self.files(kind), self.objects.get(NAME)
        if about is None:
            raise self._unusable("there is no index beside the shards. Write it once")
        index = self._read(about)
        is_own = index.about.fields == (kind.name,) if kind.checked == BLOCKS else index.about.checked != BLOCKS
        if not is_own:
            raise self._unusable(
                f"{NAME} lists other shards than those of data={kind.name}. Keep only one format below an address, and "
                "index again"
            )
        check_shards(index, files)
        if index.about.checked != kind.checked:
            raise self._unusable(f"{NAME} has no checksums of contents. Index again")
        return index

    def content_of(self, name: str) -> bytes:
        """A small object's content. Raises ConfigurationError."""
        with self.requests(name):
            return self.storage.read(name)

    def save(self, name: str, file: IO[bytes]) -> None:
        """Write an object's content to a file. Raises ConfigurationError."""
        with self.requests(name):
            self.storage.save(name, file)

    def store(self, name: str, file: IO[bytes]) -> None:
        """Put a file beside the shards, and read it back.

        Raises ConfigurationError if that fails, or if other content is read each time, which is then removed.
        """
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        with self.requests(name):
            for _ in range(TRIES):
                self.storage.store(name, file)
                if self.storage.sha256(name) == digest:
                    return
            self.storage.remove(name)
            raise StorageError("other content was read back than was stored")

    @contextmanager
    def requests(self, what: str = "") -> Iterator[None]:
        """A context in which failed requests are ConfigurationErrors. ``what``: their object and range, if any."""
        try:
            yield
        except StorageError as error:
            about = f" {printable(what)}:" if what else ""
            raise ConfigurationError.at(self.key, self.address, f":{about} {error}.") from None

    def _read(self, about: Object) -> ShardIndex:
        entry = called(self.address, *about)
        for attempt in range(TRIES):
            with (
                self.requests(NAME),
                self.storage.part(NAME, 0, about.size, entry=entry, again=attempt > 0) as file,
            ):
                file.seek(0)
                if (index := sound_index(self.address, file)) is not None:
                    return index
        raise self._unusable(f"{NAME} is damaged, or was written by another version. Index again")

    def _unusable(self, what: str) -> ConfigurationError:
        """The error for shards without a usable index. ``what``: the reason, and what the command does about it."""
        return ConfigurationError.at(self.key, self.address, f": {what}: {invocation.command('index', self.address)}")


def called(*about: object) -> str:
    """A name for the cache, which identifies what it is about."""
    return hashlib.sha256("\0".join(map(str, about)).encode(errors="surrogateescape")).hexdigest()
