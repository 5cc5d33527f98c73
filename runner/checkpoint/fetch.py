"""Fetches a run from object storage: complete, with the digests that its marker names, or not at all."""

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.checkpoint.mirror_manifest import NAME, Copy, MirrorManifest
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import scratch
from manyheads.runner.run.files import make_folder, sync_folder, take_name
from manyheads.runner.run.folder import aside
from manyheads.runner.run.objects import Address, MissingObject, StorageError, is_address, opened
from manyheads.runner.run.progress import working

if TYPE_CHECKING:
    from manyheads.runner.run.objects.storage.storage import Storage

RETRY_SECONDS = 60.0
CHECKPOINTS = "checkpoints/"
Choice = Callable[[Collection[str]], Collection[str]]  # which files of a run are needed, by their paths in it


def everything(paths: Collection[str]) -> Collection[str]:
    """Choose all files."""
    return paths


def without_checkpoints(paths: Collection[str]) -> Collection[str]:
    """Choose all files but checkpoints."""
    return [path for path in paths if not path.startswith(CHECKPOINTS)]


def with_weights(which: str | None) -> Choice:
    """Choose what using the trained model needs. ``which``: "best" or "last" weights; None = best, if there are any."""

    def choose(paths: Collection[str]) -> Collection[str]:
        best = [path for path in paths if path.startswith(f"{CHECKPOINTS}best")]
        last = [path for path in paths if path.startswith(CHECKPOINTS) and path not in best]
        return [*without_checkpoints(paths), *(best if best and which != "last" else last)]

    return choose


def fetch(address: Address, folder: Path) -> None:
    """Fetch a run into a new folder, complete or not at all. Raises ConfigurationError."""
    make_folder(folder.parent)
    beside = folder.with_name(aside(folder.name))
    try:
        _fetch(address, beside, everything)
        sync_folder(beside)
        take_name(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def at_hand(run: str | Path, choose: Choice = everything) -> Iterator[str | Path]:
    """The folder of a run; an address is fetched into a temporary one. Raises ConfigurationError."""
    if not is_address(run):
        yield run
        return
    address = Address.of(str(run), key="run")
    with scratch.folder() as root:
        folder = root / address.name
        _fetch(address, folder, choose)
        yield folder


def _fetch(address: Address, folder: Path, choose: Choice) -> None:
    """Write the chosen files into a new folder. Raises ConfigurationError."""
    try:
        with opened(address, retry_for=RETRY_SECONDS) as storage:
            manifest = MirrorManifest.parse(storage.read(NAME), of=address)
            files = {path: manifest.files[path] for path in choose(manifest.files)}
            folder.mkdir(mode=0o777)
            with working(f"fetching {address}", len(files), kept="nothing was fetched") as work:
                for path, copy in files.items():
                    _write(storage, address, copy, folder / path)
                    work.advance()
    except MissingObject:
        raise ConfigurationError(f"{address} holds no run: {NAME}, which is stored last, is missing.") from None
    except StorageError as error:
        raise ConfigurationError(f"{address} cannot be read: {error}.") from None


def _write(storage: "Storage", address: Address, copy: Copy, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "x+b") as file:
        try:
            storage.save(copy.object, file)
        except MissingObject:
            raise StorageError(f"{printable(copy.object)}, which {NAME} names, is missing") from None
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != copy.sha256:
            raise ConfigurationError(f"{address}: {printable(copy.object)} is not what was stored: its sha256 differs.")
        os.fsync(file.fileno())
        os.utime(file.fileno(), ns=(copy.mtime_ns, copy.mtime_ns))
