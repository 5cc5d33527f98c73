"""The ledger of a budget: a file beside it, with a line for each start of ranks.

A line is written before the ranks start, by one process at a time. Its end has a fixed width, and is overwritten
several times a second while they run: so a run that is killed has counted what it used, and nobody needs to notice.
"""

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, no_link, parse_json, read_bytes
from manyheads.runner.run.files import in_turn

SUFFIX = ".spent"


@dataclass(frozen=True)
class SpentSession:
    """Ranks from their start to their end, on ``devices`` devices of this ``kind``, "gpu" or "core".

    ``run``: the folder; ``began``: in seconds since 1970; ``is_running``: also of one that was killed.
    """

    run: str
    pid: int
    host: str
    began: float
    kind: str
    devices: int
    seconds: float = 0.0
    is_running: bool = True

    @classmethod
    def starting(cls, folder: Path, *, kind: str, devices: int) -> "SpentSession":
        """One that this process starts now."""
        return cls(str(folder.absolute()), os.getpid(), platform.node(), time.time(), kind, devices)

    @classmethod
    def from_json(cls, line: bytes) -> "SpentSession | None":
        """The session in a line; None for anything else, such as a line that a killed process has not completed."""
        with suppress(ValueError, TypeError, RecursionError):
            session = cls(**parse_json(line.decode()))
            if isinstance(session.run, str) and min(session.devices, session.seconds, session.began) >= 0:
                return session
        return None

    @property
    def device_seconds(self) -> float:
        """What it has used so far."""
        return self.devices * self.seconds

    def after(self, seconds: float) -> "SpentSession":
        """The same this many seconds later."""
        return replace(self, seconds=self.seconds + seconds)

    def head(self) -> str:
        """The part of its line that stays."""
        content = {key: value for key, value in asdict(self).items() if key not in ("seconds", "is_running")}
        return json.dumps(content)[:-1]

    def tail(self) -> str:
        """The part of its line that changes; its width does not."""
        flag = json.dumps(self.is_running)
        return f', "seconds": {self.seconds:15.3f}, "is_running": {flag:>5}}}\n'


class SpendingLedger:
    """The sessions that a budget counts. ``budget``: its file."""

    def __init__(self, budget: Path):
        self.path = budget.parent.resolve() / f"{budget.name}{SUFFIX}"

    def sessions(self) -> list[SpentSession]:
        """All of them. Raises ConfigurationError."""
        try:
            lines = read_bytes(self.path, most=MOST_TABLE_BYTES).split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self.unusable(error) from None
        return [session for line in lines if (session := SpentSession.from_json(line)) is not None]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A context that one process at a time is in, in which sessions may be added. Raises ConfigurationError."""
        try:
            with in_turn(self.path):
                yield
        except OSError as error:
            raise self.unusable(error) from None

    def add(self, session: SpentSession) -> "OpenSession":
        """Write a new line, within ``turn``. Raises OSError."""
        descriptor = no_link(str(self.path), os.O_RDWR)
        try:
            end = os.fstat(descriptor).st_size
            is_cut = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"  # by a full disk, or a kill
            head = "\n" * is_cut + session.head()
            _write(descriptor, head + session.tail(), end)
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return OpenSession(session, descriptor, end + len(head.encode()))

    def unusable(self, error: OSError) -> ConfigurationError:
        """The error for a file in which what runs use cannot be counted."""
        return ConfigurationError(
            f"{printable(self.path)}, in which runs count what they use of the budget: {error.strerror or error}."
        )


class OpenSession:
    """The line of ranks that run. ``session``: as it was last written; ``error``: the last write's, if it failed.

    ``offset``: where the part of the line begins that changes.
    """

    def __init__(self, session: SpentSession, descriptor: int, offset: int):
        self.session, self._descriptor, self._offset = session, descriptor, offset
        self.error: OSError | None = None
        self._since = time.monotonic()

    def beat(self, *, ended: bool = False) -> None:
        """Write what has been used so far."""
        self.session = replace(self.session, seconds=time.monotonic() - self._since, is_running=not ended)
        try:
            _write(self._descriptor, self.session.tail(), self._offset)
            self.error = None
        except OSError as error:
            self.error = error

    def end(self) -> None:
        """Write it for the last time."""
        if os.getpid() != self.session.pid:  # a fork, which has no part in it
            return
        self.beat(ended=True)
        os.close(self._descriptor)


def _write(descriptor: int, text: str, offset: int) -> None:
    content = text.encode()
    while content:
        count = os.pwrite(descriptor, content, offset)
        content, offset = content[count:], offset + count
