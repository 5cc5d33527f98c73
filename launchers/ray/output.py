"""What rank 0 says, on the terminal of the run's parent: by way of a file, since Ray would put marks before it."""

import os
import sys
import threading
from pathlib import Path

LOOK_SECONDS = 0.2


class Output:
    """A file that grows."""

    def __init__(self, path: Path):
        self._path = path
        self._read = path.stat().st_size if path.exists() else 0

    def show(self, done: threading.Event) -> None:
        """Pass on what is added to it until ``done``, the rest included."""
        while True:
            is_last = done.wait(LOOK_SECONDS)
            if self._path.exists():
                with open(self._path, "rb") as file:
                    file.seek(self._read)
                    text = file.read()
                self._read += len(text)
                sys.stdout.flush()
                os.write(sys.stdout.fileno(), text) if text else None
            if is_last:
                return
