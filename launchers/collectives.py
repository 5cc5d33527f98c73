"""Which ranks are late: ranks count the collective operations that they reach, and one that hangs has reached fewer."""

from contextlib import suppress

import psutil

from manyheads.launchers.base import Job
from manyheads.runner.run.failure import Failure

WAITED = ("timeout", "timed out", "stalled")  # what an error says of which a rank that hangs may be the cause


def waited_for(job: Job, failure: Failure) -> str:
    """A sentence about the ranks that did not reach the collective at which the others waited; or empty."""
    if not any(word in f"{failure.type} {failure.message}".lower() for word in WAITED):
        return ""
    come = {rank: job.heartbeat.collective(rank) for rank in job.watched}
    most = max(come.values(), default=0)
    late = [rank for rank, number in come.items() if number < most]
    if not late or 0 in come.values():  # all are in the same one, or a rank does not count
        return ""
    names = listed([job.name_of(rank) for rank in late])
    others = [rank for rank in come if rank not in late]
    shown = "rank" if len(others) == 1 else "ranks"
    had = f"{names} had not reached collective operation {most}"
    return f" {had[0].upper()}{had[1:]}, at which {shown} {listed(list(map(str, others)))} waited."


def stopped(job: Job) -> str:
    """A sentence on the ranks of this machine whose processes are stopped, whatever the others wait for; or nothing."""
    found = [rank for rank in job.watched if (pid := job.heartbeat.pid(rank)) and _is_stopped(pid)]
    return f" Stopped by a signal (SIGSTOP): {listed(list(map(job.name_of, found)))}." if found else ""


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


def listed(names: list[str]) -> str:
    """Join words as in "a, b and c"; of many only the first ones."""
    if len(names) > 8:
        names = [*names[:7], f"{len(names) - 7} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
