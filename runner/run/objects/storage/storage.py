"""The project's interface to object storage: lists, fetches and stores objects."""

import json
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from socket import socket
from typing import IO, Any

from manyheads.runner.machine import invocation
from manyheads.runner.run.objects import Address, Cache, Object, StorageError
from manyheads.runner.run.objects.storage import disk_cache, wire
from manyheads.runner.run.program import Process, Program, stop

ENDING = 2.0  # seconds that the process may take to end by itself
EXTRA = "the package obstore is not installed: pip install 'manyheads[storage]'"


def unavailable() -> str | None:
    """Why object storage cannot be used here; None if it can."""
    return None if find_spec("obstore") else EXTRA


class Storage(AbstractContextManager["Storage"]):
    """The objects below an address, through a separate process, which forks of this one use as well.

    ``retry_for``: seconds for which a failing request is retried; ``cache``: where parts of objects are kept. Must be
    created in the main thread, with which the process ends. Raises StorageError.
    """

    def __init__(self, address: Address, *, retry_for: float, cache: Cache | None = None):
        if reason := unavailable():
            raise StorageError(reason)
        self.address, self.cache = address, cache
        self._channel, theirs = wire.pair()
        command = [sys.executable, "-m", "manyheads.runner.run.objects.storage.process", str(theirs.fileno())]
        program = Program(command, {**os.environ, "PYTHONPATH": invocation.import_path(), "PYTHONSAFEPATH": "1"})
        with theirs:
            self._process = program.start(keep=[theirs.fileno()])
        self._end = weakref.finalize(self, _ended, self._channel, self._process, os.getpid())
        kept = {"cache": str(cache.folder), "most": cache.most} if cache else {"cache": None, "most": 0}
        try:
            with suppress(OSError):  # it has ended, which the missing answer shows
                wire.send(self._channel, {"address": address.text, "retry_for": retry_for, **kept})
            wire.checked(wire.receive(self._channel)[0])
        except StorageError:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._end()

    def list(self, below: str = "") -> list[Object]:
        """All objects, or those below a name, by name. Raises StorageError."""
        with tempfile.TemporaryFile() as file:
            self._ask({"do": "list", "below": below}, file)
            file.seek(0)
            return sorted(Object(*fields) for fields in json.load(file))

    def read(self, name: str) -> bytes:
        """A small object's content. Raises StorageError."""
        with tempfile.TemporaryFile() as file:
            self.save(name, file)
            file.seek(0)
            return file.read()

    def save(self, name: str, file: IO[bytes]) -> None:
        """Write an object's content to a file. Raises StorageError."""
        self._ask({"do": "save", "name": name}, file)

    def sha256(self, name: str) -> str:
        """The sha256 of an object's content, all of which is read back. Raises StorageError."""
        return str(self._ask({"do": "digest", "name": name})[0]["sha256"])

    def store(self, name: str, file: IO[bytes]) -> None:
        """Store a file under a name. Raises StorageError."""
        self._ask({"do": "store", "name": name}, file)

    def remove(self, name: str) -> None:
        """Remove an object, if it exists. Raises StorageError."""
        self._ask({"do": "remove", "name": name})

    def part(self, name: str, start: int, stop: int, *, entry: str, again: bool = False) -> IO[bytes]:
        """Bytes of an object from the cache entry ``entry``, which is fetched if it does not exist.

        ``again``: the cached bytes are wrong, so fetch them again. Raises StorageError.
        """
        assert self.cache is not None
        if not again and (handle := disk_cache.find(self.cache.folder, entry)) is not None:
            return open(handle, "rb", buffering=0)
        request = {"do": "range", "name": name, "start": start, "stop": stop, "entry": entry, "again": again}
        return open(self._ask(request)[1][0], "rb", buffering=0)

    def fetch_ahead(self, name: str, start: int, stop: int, *, entry: str) -> None:
        """Request bytes of an object for the cache, unless it has them, without waiting."""
        assert self.cache is not None
        if not os.path.exists(disk_cache.path_of(self.cache.folder, entry)):
            request = {"do": "range", "name": name, "start": start, "stop": stop, "entry": entry, "again": False}
            with suppress(OSError):  # ``part`` will report it
                wire.send(self._channel, request)

    def _ask(self, request: Any, file: IO[bytes] | None = None) -> tuple[Any, Sequence[int]]:
        """The answer to a request, and descriptors that come with it. ``file``: passed along. Raises StorageError."""
        connection, theirs = wire.pair()
        with connection:
            with theirs, suppress(OSError):  # if it has ended, there is no answer
                wire.send(self._channel, request, [theirs.fileno(), *([file.fileno()] if file else [])])
            try:
                answer, handles = wire.receive(connection)
            except OSError:
                answer, handles = None, []
        return wire.checked(answer), handles


def _ended(channel: socket, process: Process, owner: int) -> None:
    """End the process, unless this is a fork of the one that started it."""
    channel.close()
    if os.getpid() == owner:
        stop(process, seconds=ENDING)
