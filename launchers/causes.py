"""The cause of a failed run: the rank that failed first, and how it failed."""

import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from manyheads.launchers.job import Job
from manyheads.runner.errors import MISTAKES, ConfigurationError, Failure, Kind, RunFailed, printable_text
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, read_text
from manyheads.runner.run.files import matching
from manyheads.runner.run.heartbeat import FINISHED, STARTING
from manyheads.runner.run.run_folder import FLIGHT, RunFolder


def first_failure(job: Job, exit_codes: Mapping[int, int | None], silent: list[int]) -> Failure | None:
    """The failure that caused the others: a rank that died without a report, else the earliest reported error.

    Most errors on other ranks follow from the loss of that peer. ``silent``: the ranks that had already exited when the
    failure was noticed; the launcher ended the rest. Returns None if no rank failed.
    """
    reported = job.failures()
    died = sorted({*silent} - {failure.rank for failure in reported})
    if reported and not died:
        # the earliest that is more than the loss of a peer
        return min(reported, key=lambda failure: failure.kind is Kind.LOST_PEER)
    unfinished = [rank for rank in job.watched if job.heartbeat.state(rank) != FINISHED]
    for rank in died or unfinished:
        code = exit_codes.get(rank)
        if code and code > 0 and job.heartbeat.state(rank) == STARTING and (error := job.heartbeat.unreachable()):
            lost = Failure.of(error, rank=rank)  # the rank could not report it
            return replace(lost, exit_code=code, traceback="")
        message = f"{_how(code)}; see {job.folder}/logs{_told(job)}" if code is None else _how(code)
        return Failure(Kind.PROCESS_DIED, rank=rank, exit_code=code, message=message)
    return None


def _told(job: Job) -> str:
    """Who else knows how a rank's process has ended: the launcher that the user has started."""
    launcher = None if job.run is None else job.run.launcher
    return "" if launcher is None or launcher.starter == launcher.name else f", and what {launcher.starter} has printed"


def _how(code: int | None) -> str:
    if code is None:
        return "its process disappeared without reporting an error"
    if code >= 0:
        return f"its process ended with exit code {code} in the middle of the run"
    why = {
        signal.SIGKILL: "memory runs out",
        signal.SIGBUS: "a file mapped into memory has no room: is the disk or /dev/shm full?",
    }.get(signal.Signals(-code))
    text = f"its process was killed by {signal.Signals(-code).name}"
    return f"{text} (the kernel does that when {why})" if why else text


def error_of(failure: Failure) -> ConfigurationError | RunFailed:
    """The error to raise for a failure; for a mistake by the user, of the class that the rank raised."""
    if failure.kind is not Kind.MISTAKE:
        return RunFailed(failure)
    mistake = MISTAKES.get(failure.type, ConfigurationError)
    return mistake(failure.message, key=failure.key, value=failure.value, allowed=failure.allowed)


def refusal_of(failure: Failure | None) -> ConfigurationError | None:
    """Why a check before the ranks refuses the run; a fault of the check is printed, and refuses nothing."""
    if failure is None:
        return None
    error = error_of(failure)
    if isinstance(error, ConfigurationError):
        return error
    trace = printable_text(failure.traceback)
    print(f"warning: what the ranks would refuse could not be checked:\n{trace}", end="", file=sys.stderr)
    return None


def stalled(timeout: float) -> Failure:
    """The failure of a run that made no progress for ``timeout`` seconds."""
    message = (
        f"no rank made a step, an evaluation batch or a checkpoint for {timeout:g} seconds. The end of "
        "logs/rank_*.log shows where each rank was. If the work needs longer, set launcher.stall_timeout."
    )
    return Failure(Kind.STALLED, message=message)


def recorded(folder: RunFolder) -> str:
    """A sentence that names the log of NCCL's last calls; empty unless one of its collectives has timed out."""
    files: list[str] = []
    with suppress(OSError):  # the disk may have failed
        files = [path.name for path in matching(folder.logs, f"{FLIGHT}*")]
    return f" NCCL's last calls: {folder.logs}/{files[0]}{' and others' * (len(files) > 1)}." if files else ""


WAITED = ("timeout", "timed out", "stalled")  # in errors that a hanging rank may have caused


def waited_for(job: Job, failure: Failure) -> str:
    """A sentence that names the ranks missing from the collective at which the others waited; empty if unknown."""
    if not any(word in f"{failure.type} {failure.message}".lower() for word in WAITED):
        return ""
    reached = {rank: job.heartbeat.collective(rank) for rank in job.watched}
    pending = {rank: operation for rank in job.watched if (operation := job.heartbeat.pending(rank)) is not None}
    most = max(reached.values(), default=0)
    late = [] if 0 in reached.values() else [rank for rank, number in reached.items() if number < most]
    late = late or ([rank for rank in reached if rank not in pending] if pending else [])
    others = [rank for rank in reached if rank not in late]
    if not (late and others):  # all reached the same operation, or none is known
        return ""
    names = ranks_in_words([job.name_of(rank) for rank in late])
    what = f"collective operation {most}" if late and reached[late[0]] < most else "the next collective operation"
    of = next((f", {pending[rank]}" for rank in others if rank in pending), "")
    shown = "rank" if len(others) == 1 else "ranks"
    had = f"{names} had not reached {what}{of}"
    return f" {had[0].upper()}{had[1:]}, at which {shown} {ranks_in_words(list(map(str, others)))} waited."


def stopped(job: Job) -> str:
    """A sentence that names the ranks on this machine whose processes a signal has stopped; empty if there are none."""
    ranks = [rank for rank in job.watched if (pid := job.heartbeat.pid(rank)) and is_stopped(pid)]
    return f" Stopped by a signal (SIGSTOP): {ranks_in_words(list(map(job.name_of, ranks)))}." if ranks else ""


def is_stopped(pid: int) -> bool:
    """Whether the process with this id, on this machine, has been stopped by a signal."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


def ranks_in_words(names: list[str]) -> str:
    """Join names as "a, b and c"; of more than eight, only the first seven are named."""
    if len(names) > 8:
        names = [*names[:7], f"{len(names) - 7} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def last_words(log: Path) -> str:
    """The last line of a log, without the prefix of errors; empty if the log is empty."""
    lines = [line for line in read_text(log, most=MOST_TABLE_BYTES).splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else ""
