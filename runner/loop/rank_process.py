"""The process of a rank: its log, its title and terminal, its locks, and what it reports about waiting for others."""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.errors import Failure, Kind, RunFailed, printable_text
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import lock_shared
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.parallel import Parallel

COUNT_SECONDS = 0.5
HELD = "MANYHEADS_HELD"  # an environment variable: a file that all processes of the run keep locked; may be empty


def note_collectives(parallel: "Parallel", heartbeat: Heartbeat) -> None:
    """Report to the parent, from a thread, which collective operation this rank has reached, and waits at.

    The flight recorder is read only while the rank makes no progress, and reporting ends with a failure.
    """

    def tell() -> None:
        last: object = None
        while not heartbeat.has_failed:
            with suppress(Exception):  # it is leaving
                now = parallel.collectives(), heartbeat.own_beats
                heartbeat.note_collective(now[0], parallel.pending() if now == last else None)
                last = now
            time.sleep(COUNT_SECONDS)

    threading.Thread(target=tell, name="collectives", daemon=True).start()


def become_rank(folder: RunFolder, rank: int, world_size: int) -> None:
    """Leave the terminal's process group, set the process title, and write to the rank's own log."""
    import setproctitle

    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    setproctitle.setproctitle(f"manyheads: rank {rank}/{world_size} {folder.path}")
    log = no_link(str(folder.rank_log(rank)), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, sys.stderr.fileno())
    if rank > 0:  # rank 0 prints to the terminal
        os.dup2(log, sys.stdout.fileno())
    elif terminal := os.environ.get("MANYHEADS_TERMINAL"):
        _speak_on(terminal)
    os.close(log)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the parent asks for it when the run stalls
    if path := os.environ.get(HELD):
        _hold_named(path)


def _hold_named(path: str) -> None:
    """Keep a lock on a file that the parent has locked. Raises RunFailed if the parent has ended meanwhile."""
    with suppress(FileNotFoundError):
        hold(descriptor := no_link(path, os.O_RDONLY))
        if os.fstat(descriptor).st_nlink:  # another process has not removed it before it was locked
            return
    raise RunFailed(Failure(Kind.PARENT_ENDED, message="the process that has started this rank has ended"))


def hold(descriptor: int) -> None:
    """Keep a shared lock on an open file for the rest of this process, whose forks, such as loaders, don't have it."""
    lock_shared(descriptor)
    _held().add(descriptor)


def let_go(descriptor: int) -> None:
    """Close a file that ``hold`` has locked; other processes that hold it still do."""
    _held().discard(descriptor)
    os.close(descriptor)


@cache
def _held() -> set[int]:
    held = set[int]()

    def close() -> None:
        while held:
            os.close(held.pop())

    os.register_at_fork(after_in_child=close)
    return held


def _speak_on(terminal: str) -> None:
    """Redirect standard output from the launcher's agent to this terminal, if it is on this machine."""
    with suppress(OSError):
        descriptor = os.open(terminal, os.O_WRONLY | os.O_NOCTTY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


class _Log(logging.StreamHandler):
    """A log handler that ignores a full disk, which other errors report, instead of printing a stack for each line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextmanager
def logging_to(path: Path, *, apart: bool) -> Iterator[None]:
    """A context in which Python's log messages and warnings go to the rank's log file."""
    file = open(path, "a", opener=no_link)  # noqa: SIM115  # closed below, where it may fail
    handler = _Log(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    if apart:
        root.setLevel(logging.INFO)
        logging.captureWarnings(True)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with suppress(OSError):  # lines are lost on a full disk, but not the error that ended the run
            handler.close()
        with suppress(OSError):
            file.close()


def log_failure(error: BaseException) -> int:
    """Write what happened to the log, whose disk may be full, or hang; returns this process's exit code."""
    failure = Failure.of(error)
    with suppress(OSError):
        print(printable_text(failure.traceback), file=sys.stderr)
    return failure.exit_code or 0
