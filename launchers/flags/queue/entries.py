"""The queue: a folder with a file for each run in it, named by its position, which processes that run it keep locked.

A file says only which run it is, and never changes, so that the death of a process leaves nothing to be mended: a run
is in the queue as long as its file exists, and nobody runs it once the kernel says that nobody holds the file.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from manyheads.launchers.result import last_known
from manyheads.runner.errors import ConfigurationError, Failure, printable
from manyheads.runner.records.find import OUTPUTS
from manyheads.runner.run.files import (
    lock_shared,
    make_folder,
    remove,
    remove_leftovers,
    take_name,
    try_lock,
    write_whole,
)
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.private_folder import folder_turn, private_folder
from manyheads.runner.run.run_folder import RunFolder

QUEUE = OUTPUTS / ".queue"
MIDDLE = 500_000_000  # the first run's number; lower ones are of runs that were moved to the front
TURN_SECONDS = 60.0  # a change takes some milliseconds, but there may be many at once, and slow disks
_NAME = re.compile(r"(\d{9})\.json")


def status_of(run: RunFolder) -> str | None:
    """The status that a run has recorded; None if it has recorded none."""
    return (run.read_result() or {}).get("status")


def has_ended(run: RunFolder) -> bool:
    """Whether nothing is left to be run; of one that its ranks have completed, its end is still to be recorded."""
    return run.completed() is not None or status_of(run) == "failed"


def mark(run: RunFolder, status: str) -> None:
    """Set a run's status, and keep what is known of its progress. Raises OSError."""
    run.write_json(run.result, {**(run.read_result() or {}), "status": status})


def fail(run: RunFolder, failure: Failure) -> None:
    """Record that a run failed, unless it has recorded its end itself. Raises OSError."""
    if status_of(run) in (None, "queued"):
        failed: ResultJson = {**last_known(run), "status": "failed", "error": failure.to_json()}
        run.write_json(run.result, failed)


@dataclass(frozen=True)
class QueueEntry:
    """A run in the queue. ``path``: its folder; ``since``: when it was added, in seconds since 1970."""

    number: int
    path: str
    since: float
    is_taken: bool  # by a worker

    @property
    def run(self) -> RunFolder:
        """The run; not for each of thousands, since links in its path are looked for."""
        return RunFolder(self.path)


class RunQueue(AbstractContextManager["RunQueue"]):
    """The runs in this working directory's queue. Use it in a ``with`` statement, and its methods in a ``turn``."""

    def __init__(self, folder: Folder):
        self._folder = folder

    @classmethod
    def created(cls) -> "RunQueue":
        """The queue, created if it is missing. Raises ConfigurationError if others could write to it, and OSError."""
        make_folder(OUTPUTS.absolute())
        folder = private_folder(QUEUE, create=True, refusal=_refusal)
        if folder is None:
            raise FileNotFoundError(f"{QUEUE} was removed at once")
        return cls(folder)

    @classmethod
    def existing(cls) -> "RunQueue | None":
        """The queue; None if no run was ever queued. Raises as ``created``."""
        folder = private_folder(QUEUE, create=False, refusal=_refusal)
        return None if folder is None else cls(folder)

    def __exit__(self, *_: object) -> None:
        self._folder.__exit__()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A context in which no other process reads or changes the queue. Raises ConfigurationError, OSError."""
        with folder_turn(self._folder, seconds=TURN_SECONDS):
            yield

    def entries(self) -> Iterator[QueueEntry]:
        """All runs, in their order."""
        for name in self._folder.list():
            if match := _NAME.fullmatch(name):
                descriptor = self._folder.plain(name, os.O_RDWR)  # over NFS a lock needs that
                try:
                    content = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
                    is_taken = not try_lock(descriptor)
                finally:
                    os.close(descriptor)
                yield QueueEntry(int(match[1]), content["run"], content["since"], is_taken)

    def add(self, run: RunFolder) -> int:
        """Queue a run behind all others; returns how many are ahead of it. Raises OSError, as of a full disk."""
        remove_leftovers(self._folder.path)
        numbers = self._numbers()
        path = self._path(max(numbers, default=MIDDLE - 1) + 1)
        write_whole(path, json.dumps({"run": str(run.path), "since": time.time()}))
        try:
            mark(run, "queued")  # only now: if this process is killed before, a run that is said to be queued is
        except BaseException:
            remove(path)
            raise
        return len(numbers)

    def take(self, entry: QueueEntry) -> int:
        """Run an entry that nobody runs: a descriptor of its file, whose copies all have to be closed to end that."""
        descriptor = self._folder.plain(self._path(entry.number).name, os.O_RDWR)
        lock_shared(descriptor)
        return descriptor

    def move_first(self, entry: QueueEntry) -> None:
        """Let a run be the next one."""
        if entry.number != (first := min(self._numbers())):
            take_name(self._path(entry.number), self._path(first - 1))

    def remove(self, entry: QueueEntry) -> None:
        """Take a run out of the queue, also one that was moved meanwhile."""
        with suppress(FileNotFoundError):
            self._folder.remove(self._path(entry.number).name)

    def _numbers(self) -> list[int]:
        return [int(match[1]) for name in self._folder.list() if (match := _NAME.fullmatch(name))]

    def _path(self, number: int) -> Path:
        return self._folder.path / f"{number:09}.json"


def _refusal(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{printable(QUEUE)}, where runs wait for a worker, {why}. Remove it, or use another working directory."
    )
