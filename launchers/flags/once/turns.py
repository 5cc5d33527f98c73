"""The turn of one process among all that ask for the same run, by a lock of the kernel's, which ends with the process.

All keys share one file: each is a byte of it, so no file is left for a run.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, WaitExpired
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder, try_part
from manyheads.runner.wording import duration, tell

LOCK = ".once.lock"
LONGEST_PAUSE = 1.0  # seconds between two looks


class Waiting:
    """A wait for other processes, which says once what it is for. ``seconds``: the longest; None: no limit."""

    def __init__(self, seconds: float | None):
        self._seconds, self._until = seconds, None if seconds is None else time.monotonic() + seconds
        self._said: set[str] = set()
        self._pause = 0.05

    @property
    def has_waited(self) -> bool:
        """Whether time has passed since the question was asked."""
        return bool(self._said)

    def pause(self, reason: str) -> None:
        """Let a moment pass, since ``reason``. Raises WaitExpired once the wait has lasted as long as it may."""
        left = LONGEST_PAUSE if self._until is None else self._until - time.monotonic()
        if left <= 0:
            waited = f" --wait {duration(self._seconds)} has passed." if self._seconds else ""
            raise WaitExpired(f"{reason}, and nothing was started.{waited} Ask again later.")
        if reason not in self._said:
            self._said.add(reason)
            tell(f"{reason}: waiting for it")
        time.sleep(min(left, self._pause))
        self._pause = min(LONGEST_PAUSE, 1.5 * self._pause)


@contextmanager
def turn(root: Path, key: str, waiting: Waiting) -> Iterator[None]:
    """A context that only one process at a time is in, of those with the same key below ``root``.

    ``key``: hexadecimal digits. Raises WaitExpired, and ConfigurationError if the lock file cannot be written.
    """
    path = root.resolve() / LOCK
    place = int(key[:15], 16)  # fits into the kernel's 63 bits; two keys with the same place only wait for each other
    try:
        make_folder(path.parent)
        file = open(path, "ab", opener=no_link)  # noqa: SIM115
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written: {error.strerror}. --once keeps a lock there, by which equal commands wait. "
            "Make the folder writable, or leave out --once."
        ) from None
    with file:
        while not try_part(file.fileno(), place):
            waiting.pause("the same run was asked for, and is being run by another process")
        yield
