"""Signals and ends a run's processes, and all their descendants, by process id."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

from manyheads.runner.run.heartbeat import Heartbeat


def dump_stacks(heartbeat: Heartbeat) -> None:
    """Make each rank on this machine write its current stack to its log."""
    for rank in range(heartbeat.ranks):
        if pid := heartbeat.pid(rank):
            send(pid, signal.SIGUSR1)


def end(roots: Iterable[int], *, patience: float) -> None:
    """End processes and all their descendants.

    Descendants are killed at once. ``patience``: seconds that the roots have to exit; SIGTERM follows after half of it.
    """
    parents = list(existing(roots))
    below = [child for parent in parents for child in _descendants(parent)]
    for process in below:
        send(process.pid, signal.SIGKILL)
    alive = parents
    if patience:
        _, alive = psutil.wait_procs(alive, timeout=patience / 2)
        for process in alive:
            send(process.pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(alive, timeout=patience / 2)
    for process in alive:
        send(process.pid, signal.SIGKILL)
    psutil.wait_procs([*alive, *below], timeout=5)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:  # it has exited since it was listed
        return []


def existing(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """The processes among ``pids`` that have not exited."""
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.NoSuchProcess:
            continue


def send(pid: int, signum: int) -> None:
    """Send a signal to a process if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, signum)
