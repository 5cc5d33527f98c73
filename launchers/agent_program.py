"""A launcher's own process, which starts the ranks and reports how they ended: torchrun, horovodrun, mpirun."""

import codecs
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from manyheads.launchers.causes import refusal_of
from manyheads.launchers.job import Job
from manyheads.launchers.processes import Ranks, supervise
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, no_link, read_text
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.program import DISCARD, Process, Program, ended_within

ExitCodes = dict[int, int]
Refusal = Callable[[], ConfigurationError | None]
PREFLIGHT = "manyheads.runner.loop.preflight"
_RUN = "import manyheads, runpy, sys; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def as_module(name: str) -> list[str]:
    """Arguments for Python equivalent to ``-m name``, except that torch is not imported from the working directory.

    manyheads.runner.machine.import_apart gives the reason.
    """
    return ["-c", _RUN, name]


def run_agent(
    command: list[str],
    job: Job,
    *,
    environment: Mapping[str, str],
    log: Path,
    read_exit_codes: Callable[[str], ExitCodes],
    stall_timeout: float,
    quiet: bool = False,
) -> None:
    """Run ``command`` to its end and raise as ``manyheads.launchers.processes.supervise`` does.

    ``log``: where its messages go; with ``quiet``, its standard output too. ``read_exit_codes``: finds the ranks that
    failed in these messages.
    """
    program = Program(command, environment)
    with (
        open(log, "wb", opener=no_link) as file,
        _looking(job, environment) if job.is_untried else nullcontext(lambda: None) as refusal,
        program.start(stdout=file if quiet else None, stderr=file) as agent,
    ):
        ranks = AgentRanks(agent, log, read_exit_codes, job.heartbeat, refusal)
        supervise(ranks, job, stall_timeout=stall_timeout)


@contextmanager
def _looking(job: Job, environment: Mapping[str, str]) -> Iterator[Refusal]:
    """A context in which another process checks what ranks would refuse; yields a function that returns its finding.

    The ranks would refuse it too, but they import torch only after the agent has imported it.
    """
    answer, theirs = Pipe(duplex=False)
    look = [sys.executable, *as_module(PREFLIGHT), str(job.folder.path), str(theirs.fileno())]
    with (
        answer,
        Program(look, environment).start(stdout=DISCARD, stderr=DISCARD, keep=[theirs.fileno()]) as process,
    ):
        theirs.close()
        try:
            yield partial(_found, answer)
        finally:
            process.kill()


def _found(answer: Connection) -> ConfigurationError | None:
    with suppress(EOFError, OSError):  # the process found nothing, or was killed
        if answer.poll():
            return refusal_of(answer.recv())
    return None


def ordered(
    command: list[str],
    read_exit_codes: Callable[[str], ExitCodes],
    *,
    log: str,
) -> dict[str, Any]:
    """What another machine's agent has to run, as a message to it; arguments as for ``run_agent``.

    ``command``: in which the machine fills in ``{python}`` and ``{scratch}``.
    """
    return {
        "exit_codes": f"{read_exit_codes.__module__}.{read_exit_codes.__name__}",
        "command": command,
        "log": log,
    }


class AgentRanks(Ranks):
    """Ranks started by an agent; only the agent knows how they ended."""

    patience = 2.0
    patience_to_report = 30.0  # on a busy machine torchrun's closing report takes seconds

    def __init__(
        self,
        agent: Process,
        log: Path,
        read_exit_codes: Callable[[str], ExitCodes],
        heartbeat: Heartbeat,
        refusal: Refusal,
    ):
        super().__init__(heartbeat)
        self._agent, self._log, self._read, self._refusal = agent, log, read_exit_codes, refusal

    def refusal(self) -> ConfigurationError | None:
        return self._refusal()

    def roots(self) -> list[int]:
        return [self._agent.pid]

    def running(self) -> bool:
        return self._agent.poll() is None

    def wait(self, seconds: float) -> None:
        ended_within(self._agent, seconds)

    def exit_codes(self) -> ExitCodes:
        """The failures that the agent lists at its end; it reports nothing about ranks that succeeded."""
        if self._agent.poll() is None:
            return {}
        try:
            return self._read(read_text(self._log, most=MOST_TABLE_BYTES))
        except OSError:  # the disk may be what failed
            return {}


class GrowingOutput:
    """Passes on what is appended to a file by an agent or a job. Reopened for each read, since it may be on NFS."""

    def __init__(self, path: Path):
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0

    def pass_on(self) -> None:
        """Print what was written since the last call. Raises OSError if nothing can be printed."""
        try:
            with open(self._path, "rb", opener=no_link) as file:
                file.seek(self._at)
                new = file.read()
        except OSError:
            return
        self._at += len(new)
        if new:
            sys.stdout.buffer.write(new) if hasattr(sys.stdout, "buffer") else sys.stdout.write(new.decode())
            sys.stdout.flush()


VARIABLE = "MANYHEADS_TERMINAL"


@contextmanager
def relay_stdout() -> Iterator[dict[str, str]]:
    """Yield the variable that names where rank 0 writes: the terminal, or a pipe that is copied to stdout."""
    if sys.stdout.isatty():
        yield {VARIABLE: os.ttyname(sys.stdout.fileno())}
        return
    with scratch.folder() as folder:
        path = folder / "stdout"
        os.mkfifo(path)
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a blocking open would wait for a writer
        os.set_blocking(source, True)
        kept_open = os.open(path, os.O_WRONLY)
        copier = threading.Thread(target=_copy, args=(source,), daemon=True)
        copier.start()
        try:
            yield {VARIABLE: str(path)}
        finally:
            os.close(kept_open)  # the pipe ends when rank 0 has ended too
            copier.join(timeout=5)
            os.close(source)


def _copy(source: int) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while data := os.read(source, 65536):
        with suppress(OSError, ValueError):  # stdout is closed; go on reading, so that rank 0 does not block
            sys.stdout.write(decoder.decode(data))
            sys.stdout.flush()
