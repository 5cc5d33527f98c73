"""A command in a process of its own, as a tool's call: its events while it runs, its JSON at its end."""

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from manyheads.runner.errors import ExitCode
from manyheads.runner.machine import invocation
from manyheads.runner.run.program import Process, Program
from manyheads.runner.run.progress import EVENT

POLL_SECONDS = 0.05
SHOWN = 2000  # characters of the last output of a command that did not answer
ANSWERS = (ExitCode.DONE, ExitCode.NO, ExitCode.UNDECIDED)


class CallEnd(NamedTuple):
    """How a command ended. ``reply``: what it printed with --json; None if it was killed before."""

    code: int
    reply: Mapping[str, Any] | None
    text: str

    @property
    def is_error(self) -> bool:
        """Whether it did not answer: it failed, was refused or was interrupted."""
        return self.reply is None or self.code not in ANSWERS


@dataclass
class CommandCall:
    """One call. ``is_stopping``: whether the command was asked to end, and has not yet."""

    words: Sequence[str]
    folder: Path
    is_stopping: bool = False

    async def run(self, on_events: Callable[[dict[str, str]], Awaitable[None]]) -> CallEnd:
        """Run the command to its end, or stop it, with a checkpoint, if this task is cancelled.

        If this process dies, the kernel sends SIGTERM to the command, whose output needs no reader. ``on_events``: gets
        the last line of each kind of events since it was last called.
        """
        command = [sys.executable, "-m", "manyheads", "--json", "--progress", "json", *self.words]
        path = {"PYTHONPATH": invocation.import_path(), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
        program = Program(command, {**os.environ, **path}, self.folder, at_parents_end=signal.SIGTERM)
        with _memory_file() as answer, _memory_file() as printed:
            lines = _Lines(printed)
            process = program.start(stdout=answer, stderr=printed)
            try:
                while process.poll() is None:
                    await anyio.sleep(POLL_SECONDS)
                    await on_events(lines.events())
            finally:
                await self._stop(process)
            lines.events()
            return _end(process.returncode, _content(answer), lines.last)

    async def _stop(self, process: Process) -> None:
        if process.poll() is None:
            self.is_stopping = True
            process.terminate()
        with anyio.CancelScope(shield=True):
            while process.poll() is None:
                await anyio.sleep(POLL_SECONDS)
        self.is_stopping = False


class _Lines:
    """What a command prints on stderr: events are returned, and all else is printed here, too."""

    def __init__(self, file: int):
        self._file, self._position, self._rest = file, 0, b""
        self.last = ""

    def events(self) -> dict[str, str]:
        """The last new line of each kind of events."""
        new = _content(self._file, self._position)
        self._position += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        events = {}
        for line in (line.decode(errors="replace") for line in lines):
            if line.startswith(EVENT):
                events[json.loads(line)["event"]] = line
            else:
                print(line, file=sys.stderr, flush=True)
                self.last = f"{self.last}{line}\n"[-SHOWN:]
        return events


@contextmanager
def _memory_file() -> Iterator[int]:
    """The descriptor of a file without a name: unlike a pipe, it needs no reader, and nothing is left of it."""
    file = os.memfd_create("manyheads")
    try:
        yield file
    finally:
        os.close(file)


def _content(file: int, position: int = 0) -> bytes:
    return os.pread(file, os.fstat(file).st_size - position, position)


def _end(code: int, answer: bytes, printed: str) -> CallEnd:
    try:
        reply = json.loads(answer)
    except ValueError:
        return CallEnd(code, None, f"the command ended with code {code}, without an answer:\n{printed}")
    if (error := reply["error"]) is None:
        return CallEnd(code, reply, json.dumps(reply, ensure_ascii=False))
    return CallEnd(code, reply, "\n".join(filter(None, (error["message"], error["kept"]))))
