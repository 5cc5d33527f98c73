"""The process that talks to object storage for another process and all its forks.

obstore's threads do not survive a fork, and loader processes are forks. So no other process imports it.
"""

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import PriorityQueue
from socket import AF_UNIX, SOCK_SEQPACKET, socket
from typing import Any

from manyheads.runner.run.objects import Address, Cache, StorageError
from manyheads.runner.run.objects.storage import wire
from manyheads.runner.run.objects.storage.bucket import Bucket
from manyheads.runner.run.objects.storage.disk_cache import DiskCache

THREADS = 16  # requests at once
NOW, AHEAD = 0, 1  # priorities
Message = Mapping[str, Any]  # a request of another process, or the answer to it


@dataclass
class _Job:
    """An entry to fetch. ``waiting``: the connections that get its descriptor."""

    request: Message
    waiting: list[socket] = field(default_factory=list)
    has_begun: bool = False


class Server:
    """Answers requests, those with somebody waiting before prefetches, and fetches each part of an object once."""

    def __init__(self, bucket: Bucket, cache: DiskCache | None):
        self._bucket, self._cache = bucket, cache
        self._queue: PriorityQueue[tuple[int, int, Callable[[], None]]] = PriorityQueue()
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._count = 0
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()

    def take(self, request: Message, files: list[int]) -> None:
        """Queue a request. ``files``: the connection for the answer, and other descriptors that came with it."""
        answer = socket(AF_UNIX, SOCK_SEQPACKET, fileno=files[0]) if files else None
        if request["do"] == "range":
            self._take_range(request, answer)
        elif answer is not None:
            work = partial(getattr(self, f"_{request['do']}"), request)
            self._put(NOW, partial(_answered, answer, work, files[1] if len(files) > 1 else -1))

    def _take_range(self, request: Message, answer: socket | None) -> None:
        with self._lock:
            job = self._jobs.setdefault(request["entry"], _Job(request))
            is_new = job.request is request
            if answer is not None:
                job.waiting.append(answer)
            if request["again"] and not is_new:
                job.request = {**job.request, "again": True}
        if is_new or (answer is not None and not job.has_begun):
            self._put(AHEAD if answer is None else NOW, lambda: self._fetch(job))

    def _put(self, priority: int, work: Callable[[], None]) -> None:
        self._count += 1
        self._queue.put((priority, self._count, work))

    def _work(self) -> None:
        while True:
            self._queue.get()[2]()

    def _fetch(self, job: _Job) -> None:
        with self._lock:
            if job.has_begun:  # it was queued twice, the second time with priority
                return
            job.has_begun = True
        answer: Message = {}
        handle = None
        try:
            handle = self._entry(job.request)
        except StorageError as error:
            answer = wire.failure(error)
        except Exception as error:
            answer = wire.failure(StorageError(f"{type(error).__name__} in the process that talks to it"))
        with self._lock:
            del self._jobs[job.request["entry"]]
        for connection in job.waiting:
            with connection, suppress(OSError):  # the other side has ended
                wire.send(connection, answer, [] if handle is None else [handle])
        if handle is not None:
            os.close(handle)

    def _entry(self, request: Message) -> int:
        """The descriptor of a part of an object in the cache. Raises StorageError."""
        assert self._cache is not None
        name = request["entry"]
        if request["again"]:
            self._cache.drop(name)
        elif (handle := self._cache.find(name)) is not None:
            return handle
        return self._cache.add(name, self._bucket.read(request["name"], request["start"], request["stop"]))

    def _list(self, request: Message, file: int) -> None:
        _write(file, [json.dumps(list(self._bucket.list(request["below"]))).encode()])

    def _save(self, request: Message, file: int) -> None:
        _write(file, self._whole(request["name"]))

    def _digest(self, request: Message, file: int) -> Message:
        digest = hashlib.sha256()
        for part in self._whole(request["name"]):
            digest.update(part)
        return {"sha256": digest.hexdigest()}

    def _store(self, request: Message, file: int) -> None:
        with open(file, "rb", closefd=False) as source:
            self._bucket.write(request["name"], source)

    def _remove(self, request: Message, file: int) -> None:
        self._bucket.remove(request["name"])

    def _whole(self, name: str) -> Iterator[bytes]:
        return self._bucket.read(name, 0, self._bucket.size(name))


def _answered(answer: socket, work: Callable[[int], Message | None], file: int) -> None:
    """Do ``work`` with a file, and answer with what it returns."""
    with answer:
        try:
            reply = work(file) or {}
        except StorageError as error:
            reply = wire.failure(error)
        except OSError as error:
            reply = wire.failure(StorageError(f"the local disk failed ({error.strerror})"))
        finally:
            if file >= 0:
                os.close(file)
        with suppress(OSError):
            wire.send(answer, reply)


def _write(handle: int, parts: Iterable[bytes]) -> None:
    with open(handle, "wb", closefd=False) as file:
        file.writelines(parts)


def main() -> None:
    """Answer requests on the socket whose descriptor is the only argument, until all its other ends are closed."""
    with socket(AF_UNIX, SOCK_SEQPACKET, fileno=int(sys.argv[1])) as channel:
        settings, _ = wire.receive(channel)
        try:
            bucket = Bucket(Address(settings["address"]), retry_for=settings["retry_for"])
            folder = settings["cache"]
            cache = DiskCache(Cache(Path(folder), settings["most"])) if folder else None
        except StorageError as error:
            wire.send(channel, wire.failure(error))
            return
        wire.send(channel, {"ready": True})
        server = Server(bucket, cache)
        while True:
            request, files = wire.receive(channel)
            if request is None:
                os._exit(0)  # even if something is still being fetched
            server.take(request, files)


if __name__ == "__main__":
    main()
