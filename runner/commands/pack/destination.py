"""Where shards are packed to: a new folder, or an empty place in object storage; complete or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from manyheads.runner.config.lookup import read_option
from manyheads.runner.data.shards.stored import Reading, StoredShards
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import scratch
from manyheads.runner.run.files import make_folder, take_name
from manyheads.runner.run.folder import aside
from manyheads.runner.run.objects import Address, StorageError, place_of


class Destination:
    """Files are written into ``folder``, and reported one by one. ``bytes``: of all files so far."""

    def __init__(self, folder: Path):
        self.folder, self.bytes = folder, 0

    def finish(self, name: str) -> None:
        """Take over a file that is complete. Raises ConfigurationError."""
        self.bytes += (self.folder / name).stat().st_size


class StoredDestination(Destination):
    """Each file is put into object storage, read back, and removed from the folder."""

    def __init__(self, folder: Path, shards: StoredShards):
        super().__init__(folder)
        self.shards, self.names = shards, list[str]()

    def finish(self, name: str) -> None:
        super().finish(name)
        self.names.append(name)
        path = self.folder / name
        with open(path, "rb") as file:
            self.shards.store(name, file)
        path.unlink()

    def remove(self) -> None:
        """Remove what was stored, as far as the server can be reached."""
        with suppress(StorageError):
            for name in self.names:
                self.shards.storage.remove(name)


def refuse_existing(shards: str) -> None:
    """Raises ConfigurationError for a folder that exists, and an invalid address."""
    target = place_of(shards, key="shards")
    if isinstance(target, Path) and os.path.lexists(target):
        raise ConfigurationError.at("shards", shards, " already exists. Name a new folder.")


def destination(shards: str) -> AbstractContextManager[Destination]:
    """A context for writing to a folder or address. If it fails, nothing is left. Raises ConfigurationError."""
    target = place_of(shards, key="shards")
    return _stored(target) if isinstance(target, Address) else _folder(target.absolute())


@contextmanager
def _folder(folder: Path) -> Iterator[Destination]:
    make_folder(folder.parent)
    beside = folder.with_name(aside(folder.name))
    beside.mkdir()
    try:
        yield Destination(beside)
        take_name(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _stored(address: Address) -> Iterator[Destination]:
    with (
        StoredShards(address, Reading.of(read_option("data", "tar")), key="shards") as shards,
        scratch.folder() as folder,
    ):
        if shards.objects:
            first = next(iter(shards.objects))
            raise ConfigurationError.at("shards", address, f" already has objects, such as {first}. Name a new one.")
        stored = StoredDestination(folder.resolve(), shards)
        try:
            yield stored
        except BaseException:
            stored.remove()
            raise
