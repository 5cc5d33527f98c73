"""The cause of a failed run: the rank that failed first, and how it failed."""

import signal
from collections.abc import Mapping
from contextlib import suppress

from manyheads.launchers.base import Job
from manyheads.runner.run.errors import ConfigurationError, RunFailed
from manyheads.runner.run.failure import Failure, Kind
from manyheads.runner.run.heartbeat import FINISHED
from manyheads.runner.run.run_folder import FLIGHT, RunFolder


def first_failure(job: Job, exit_codes: Mapping[int, int | None], silent: list[int]) -> Failure | None:
    """The failure that caused the others: a rank that died without a report, else the earliest reported error.

    Most errors on other ranks follow from the loss of that peer. ``silent``: the ranks that had already exited when the
    failure was noticed; the launcher ended the rest. Returns None if no rank failed.
    """
    reported = job.failures()
    died = sorted({*silent} - {failure.rank for failure in reported})
    if reported and not died:
        # the first of those with a cause of their own
        return min(reported, key=lambda failure: failure.kind is Kind.LOST_PEER)
    unfinished = [rank for rank in job.watched if job.heartbeat.state(rank) != FINISHED]
    for rank in died or unfinished:
        code = exit_codes.get(rank)
        message = f"{_how(code)}; see {job.folder}/logs" if code is None else _how(code)
        return Failure(Kind.PROCESS_DIED, rank=rank, exit_code=code, message=message)
    return None


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
    """The error to raise for a failure: ConfigurationError if a rank found a mistake by the user."""
    return ConfigurationError(failure.message) if failure.kind is Kind.MISTAKE else RunFailed(failure)


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
        files = sorted(path.name for path in folder.logs.glob(f"{FLIGHT}*"))
    return f" NCCL's last calls: {folder.logs}/{files[0]}{' and others' * (len(files) > 1)}." if files else ""
