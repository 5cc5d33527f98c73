"""Starts other programs, and ends them with this process; no other module does."""

import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple

from manyheads.runner.errors import Interrupted
from manyheads.runner.machine.process import die_with_parent, handled_by

PIPE, DISCARD = subprocess.PIPE, subprocess.DEVNULL
Process = subprocess.Popen[bytes]
Stream = IO[Any] | int | None  # a file, PIPE, DISCARD, or None for this process's own
TIMED_OUT = 124  # the exit code of a program that took too long, as that of timeout(1)


class ProgramOutput(NamedTuple):
    """The exit code of a program, negative for the signal that killed it, and all that it printed."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The standard output as text; what is not UTF-8 is replaced."""
        return self.output.decode(errors="replace")


@dataclass(frozen=True)
class Program:
    """A command line, and where it runs.

    It is the leader of its own session, so that the terminal's Ctrl-C reaches this process alone, which passes it on;
    and it reads no terminal.

    ``environment``: all of its variables; None: those of this process. ``folder``: its working directory; None: that of
    this process. ``outlives``: whether it may outlive this process; otherwise the kernel sends it ``at_parents_end``
    when the thread that started it has ended, for whatever reason.
    """

    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    folder: str | Path | None = None
    outlives: bool = False
    at_parents_end: signal.Signals = signal.SIGKILL

    def start(
        self, *, stdin: Stream = DISCARD, stdout: Stream = None, stderr: Stream = None, keep: Sequence[int] = ()
    ) -> Process:
        """Start it. ``keep``: descriptors that it inherits. Raises OSError if there is no such program."""
        return subprocess.Popen(
            self.command,
            env=self.environment,
            cwd=self.folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=keep,
            start_new_session=True,
            preexec_fn=None if self.outlives else partial(die_with_parent, self.at_parents_end),
        )

    def ask(self, *, given: bytes = b"", seconds: float | None = None) -> ProgramOutput:
        """Run a short program to its end and return what it prints.

        ``given``: its input; ``seconds``: after which it is killed. Raises OSError if there is no such program.
        """
        try:
            done = subprocess.run(
                self.command,
                env=self.environment,
                cwd=self.folder,
                input=given,
                capture_output=True,
                timeout=seconds,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return ProgramOutput(TIMED_OUT, b"", f"{self.command[0]} timed out after {seconds:g} seconds")
        return ProgramOutput(done.returncode, done.stdout, done.stderr.decode(errors="replace"))

    def run(self, *, on_line: Callable[[str], None] | None = None, stdout: Stream = None, stderr: Stream = None) -> int:
        """Run it to its end, and pass on signals that stop it; returns its exit code, as in ``ProgramOutput``.

        ``on_line``: gets its output, errors included, line by line, in place of ``stdout`` and ``stderr``. Raises
        Interrupted once it has ended, if there was a signal; signals reach the main thread alone.
        """
        received: list[int] = []
        children: list[Process] = []

        def pass_on(signum: int, _: FrameType | None) -> None:
            received.append(signum)
            for child in children:
                child.send_signal(signum)

        is_main = threading.current_thread() is threading.main_thread()
        with handled_by(pass_on) if is_main else nullcontext():
            if on_line is not None:
                stdout, stderr = PIPE, subprocess.STDOUT
            with self.start(stdout=stdout, stderr=stderr) as child:
                children.append(child)
                for signum in received:  # received before it was started
                    child.send_signal(signum)
                try:
                    for line in child.stdout or ():
                        assert on_line is not None
                        on_line(line.decode(errors="replace"))
                    code = child.wait()
                finally:
                    stop(child)
        if received:
            raise Interrupted(received[0])
        return code


def stop(process: Process, *, seconds: float = 0.0, signum: int = signal.SIGTERM) -> None:
    """End a program that still runs, after up to ``seconds`` in which it may end by itself."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return
    process.send_signal(signum)
    process.wait()


def ended_within(process: Process, seconds: float) -> bool:
    """Whether a program ends within ``seconds``."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None
