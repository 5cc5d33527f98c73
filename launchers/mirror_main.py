"""The process that copies a run to object storage while it trains: it reads the run's folder, and delays nobody.

What it finds changed, it stores; while it does, the run may write further checkpoints, of which it takes the last one
next. Once its input ends, the run has ended, and it stores what is left. Its last line says how that went.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from manyheads.runner.checkpoint.mirror.upload import Mirror
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import seconds
from manyheads.runner.run.files import matching
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.storage.address import Address
from manyheads.runner.run.storage.storage import Storage
from manyheads.runner.run.storage.wire import StorageError

MAIN = "manyheads.launchers.mirror_main"
LOOK_SECONDS = 0.5
RETRY_SECONDS = 10.0  # of a request; what fails is tried again as long as the run trains
PAUSES = (1.0, 30.0)  # seconds after a failure, the first and the longest
REFUSED, READY, FAILED, OVER = "refused", "ready", "failed", "over"


class Watch:
    """Keeps the copy of a run like the run. ``say``: gets what the run's parent should know."""

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
        """Store what is left, for at most so long; returns what is not stored then, and why."""
        deadline, pause = time.monotonic() + seconds, PAUSES[0]
        while not (is_done := self._tried(self._mirror.update)) and time.monotonic() + pause < deadline:
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])
        return {"state": OVER, "lacks": [], "error": ""} if is_done else self.given_up()

    def given_up(self) -> dict[str, Any]:
        """What is not stored, and why."""
        return {"state": OVER, "lacks": self._mirror.lacks(), "error": self._error or "it took too long"}

    def _tried(self, work: Callable[[], None]) -> bool:
        """Whether ``work`` succeeds; else its error is said once. Another run at the address ends the process."""
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
    """What changes with each checkpoint."""
    found = []
    for path in matching(folder.checkpoints, "[!.]*"):
        try:
            status = path.stat()
        except OSError:  # it has just been removed
            continue
        found.append((path.name, status.st_ino, status.st_mtime_ns))
    return found


def main() -> None:
    """``python -m ... <folder> <address> <seconds>``: see above. ``seconds``: for what is left at the end."""
    path, address, most = sys.argv[1:]

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)

    try:
        storage = Storage(Address(address), retry_for=RETRY_SECONDS)
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
    os._exit(0)  # although a thread may still wait for an answer; the process that it asks ends too


if __name__ == "__main__":
    main()
