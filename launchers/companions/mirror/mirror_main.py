"""The process that copies a run to object storage while it trains; it only reads the run's folder and delays no rank.

It stores what has changed. Of the checkpoints that the run writes meanwhile, it stores the latest next. The end of its
stdin means that the run has ended: it stores the rest, and its last line reports the outcome.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from manyheads.launchers.companions.mirror.upload import Mirror
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import seconds
from manyheads.runner.run.files import matching
from manyheads.runner.run.objects import Address, StorageError, opened
from manyheads.runner.run.run_folder import RunFolder

MAIN = "manyheads.launchers.companions.mirror.mirror_main"
LOOK_SECONDS = 0.5
RETRY_SECONDS = 10.0  # of one request; the whole is retried as long as the run trains
PAUSES = (1.0, 30.0)  # seconds after a failure, the first and the longest
REFUSED, READY, FAILED, OVER = "refused", "ready", "failed", "over"


class Watch:
    """Keeps the copy of a run up to date. ``say``: receives the messages to the run's parent."""

    def __init__(self, mirror: Mirror, say: Callable[[dict[str, Any]], None]):
        self._mirror, self._say = mirror, say
        self._error = ""

    def follow(self, is_over: threading.Event) -> None:
        """Store each change until the run is over."""
        stored: Any = None
        pause = PAUSES[0]
        if self._tried(self._mirror.look):
            self._say({"state": READY})
        while not is_over.wait(LOOK_SECONDS):
            state = _state(self._mirror.folder)
            if state == stored or not state:
                continue
            if self._tried(self._mirror.update):
                stored, pause = state, PAUSES[0]
            elif is_over.wait(pause):
                return
            else:
                pause = min(2 * pause, PAUSES[1])

    def finish(self, seconds: float) -> dict[str, Any]:
        """Store the rest within ``seconds``; returns the last message: which files could not be stored, and why."""
        deadline, pause = time.monotonic() + seconds, PAUSES[0]
        while not (is_done := self._tried(self._mirror.update)) and time.monotonic() + pause < deadline:
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])
        return {"state": OVER, "lacks": [], "error": ""} if is_done else self.given_up()

    def given_up(self) -> dict[str, Any]:
        """The last message if storing was not finished: the files that are not stored, and why."""
        return {"state": OVER, "lacks": self._mirror.lacks(), "error": self._error or "it took too long"}

    def _tried(self, work: Callable[[], None]) -> bool:
        """Whether ``work`` succeeds; an error is reported once. If the address holds another run, the process ends."""
        try:
            work()
        except (StorageError, OSError) as error:
            why = str(error) if isinstance(error, StorageError) else str(error.strerror)
            if why != self._error:
                self._say({"state": FAILED, "error": why})
            self._error = why
            return False
        except ConfigurationError as error:
            self._say({"state": REFUSED, "error": str(error)})
            os._exit(0)
        self._error = ""
        return True


def _state(folder: RunFolder) -> list[tuple[str, int, int]]:
    """Name, inode and modification time of the checkpoints: what each new checkpoint changes."""
    files = []
    for path in matching(folder.checkpoints, "[!.]*"):
        try:
            status = path.stat()
        except OSError:  # it has just been removed
            continue
        files.append((path.name, status.st_ino, status.st_mtime_ns))
    return files


def main() -> None:
    """``python -m ... <folder> <address> <seconds>``: ``seconds`` limits the time for the rest after the run's end."""
    path, address, most = sys.argv[1:]

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)

    try:
        storage = opened(Address(address), retry_for=RETRY_SECONDS)
    except StorageError as error:
        say({"state": REFUSED, "error": f"checkpoint.mirror={address}: {error}."})
        return
    watch, is_over = Watch(Mirror(RunFolder(path), storage), say), threading.Event()
    following = threading.Thread(target=watch.follow, args=(is_over,), daemon=True)
    following.start()
    sys.stdin.read()
    is_over.set()
    end = time.monotonic() + (seconds(most) or 0.0)
    following.join(end - time.monotonic())
    say(watch.given_up() if following.is_alive() else watch.finish(end - time.monotonic()))
    os._exit(0)  # even if a thread still waits for an answer; the process that it asks ends too


if __name__ == "__main__":
    main()
