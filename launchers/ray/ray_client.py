"""The child process that communicates with Ray, as seen by the run's parent; it holds the placement group.

Ray's client starts threads, sets signal handlers and writes to the terminal, none of which may happen in the parent.
However this child ends, Ray then ends everything that it has started for it.
"""

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.program import PIPE, Program, stop

DRIVER = "manyheads.launchers.ray.ray_driver"
END_SECONDS = 15.0


class RayClient:
    """``asked``: the bundles, as ``ray_driver`` reads them. Raises ConfigurationError without Ray.

    ``address``: of this machine in the cluster; ``is_placed``: whether all bundles have their devices; ``wanted``: what
    Ray says of those that do not; ``failure``: why this will come to nothing.
    """

    def __init__(self, asked: dict[str, Any], *, log: Path):
        with open(log, "ab", opener=no_link) as file:
            # Ray's workers look for modules where the driver stands, before all others.
            program = Program([sys.executable, "-m", DRIVER], folder="/")
            self._process = program.start(stdin=PIPE, stdout=PIPE, stderr=file)
        self._log = log
        self.is_placed, self.wanted = False, "no answer yet"
        self.failure: str | None = None
        self._listener: threading.Thread | None = None
        self._say(asked)
        met = self._hear()
        if met is None or "failure" in met:
            self.close()
            raise ConfigurationError(met["failure"] if met else f"Ray cannot be reached; see {log}")
        self.address: str = met["address"]
        self._listener = threading.Thread(target=self._listen, name="gang", daemon=True)
        self._listener.start()

    def start(self, commands: list[str]) -> None:
        """Place the bundles, and keep a command running in each."""
        self._say(commands)

    def close(self) -> None:
        """Give everything back to Ray."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        stop(self._process, seconds=END_SECONDS, signum=signal.SIGKILL)
        if self._listener is not None:
            self._listener.join(timeout=5)
        self._process.stdout.close()  # type: ignore[union-attr]

    def __enter__(self) -> "RayClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _say(self, value: Any) -> None:
        with suppress(OSError):  # that it is gone is heard
            self._process.stdin.write(f"{json.dumps(value)}\n".encode())  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _hear(self) -> dict[str, Any] | None:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        return json.loads(line) if line else None

    def _listen(self) -> None:
        while (said := self._hear()) is not None:
            self.is_placed = said.get("is_placed", self.is_placed)
            self.wanted = said.get("wanted", self.wanted)
            self.failure = said.get("failure", self.failure)
        self.failure = self.failure or f"the process that communicates with Ray has exited; see {self._log}"


LOOK_SECONDS = 0.2


class RayOutput:
    """A file that grows."""

    def __init__(self, path: Path):
        self._path = path
        self._read = path.stat().st_size if path.exists() else 0

    def show(self, done: threading.Event) -> None:
        """Pass on what is added to it until ``done``, the rest included."""
        while True:
            is_last = done.wait(LOOK_SECONDS)
            if self._path.exists():
                with open(self._path, "rb", opener=no_link) as file:
                    file.seek(self._read)
                    text = file.read()
                self._read += len(text)
                sys.stdout.flush()
                os.write(sys.stdout.fileno(), text) if text else None
            if is_last:
                return
