"""Finds the ranks that hang: each rank counts the collectives it reaches, and one that hangs has reached fewer."""

from contextlib import suppress

import psutil

from manyheads.launchers.base import Job
from manyheads.runner.run.failure import Failure

WAITED = ("timeout", "timed out", "stalled")  # in errors that a hanging rank may have caused


def waited_for(job: Job, failure: Failure) -> str:
    """A sentence that names the ranks missing from the collective at which the others waited; empty if unknown."""
    if not any(word in f"{failure.type} {failure.message}".lower() for word in WAITED):
        return ""
    come = {rank: job.heartbeat.collective(rank) for rank in job.watched}
    most = max(come.values(), default=0)
    late = [rank for rank, number in come.items() if number < most]
    if not late or 0 in come.values():  # all reached the same one, or some rank keeps no count
        return ""
    names = listed([job.name_of(rank) for rank in late])
    others = [rank for rank in come if rank not in late]
    shown = "rank" if len(others) == 1 else "ranks"
    had = f"{names} had not reached collective operation {most}"
    return f" {had[0].upper()}{had[1:]}, at which {shown} {listed(list(map(str, others)))} waited."


def stopped(job: Job) -> str:
    """A sentence that names the ranks on this machine whose processes a signal has stopped; empty if there are none."""
    found = [rank for rank in job.watched if (pid := job.heartbeat.pid(rank)) and is_stopped(pid)]
    return f" Stopped by a signal (SIGSTOP): {listed(list(map(job.name_of, found)))}." if found else ""


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped this process of this machine."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


def listed(names: list[str]) -> str:
    """Join words as in "a, b and c"; shorten a list of more than eight."""
    if len(names) > 8:
        names = [*names[:7], f"{len(names) - 7} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
