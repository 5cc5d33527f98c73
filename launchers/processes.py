"""Watch started ranks: forward signals, notice failures and stalls, and end everything when one rank fails."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import psutil

from manyheads.launchers.base import Job
from manyheads.launchers.collectives import waited_for
from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.heartbeat import FAILED, FINISHED, Heartbeat
from manyheads.runner.run.run_folder import FLIGHT, RunFolder

POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0  # for the other ranks, and the launcher's own clean-up, once one rank has failed


class Ranks(Protocol):
    """What a launcher has started. ``patience``: seconds that the root processes get to clean up after their ranks."""

    patience: float

    def roots(self) -> list[int]:
        """Ids of the processes that the launcher itself started."""

    def running(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Return when a process ends, or after ``seconds``."""

    def exit_codes(self) -> Mapping[int, int | None]:
        """Exit code of each rank that has ended; negative: the signal that killed it; None: unknown."""

    def tell_where(self) -> None:
        """Make each rank write its current stack to its log."""


def supervise(ranks: Ranks, job: Job, *, stall_timeout: float) -> None:
    """Wait for the end of a run. Raises RunFailed, ConfigurationError or Interrupted; leaves no process."""
    signals = job.signals
    try:
        silent = _watch(ranks, job, signals, Watchdog(job, stall_timeout, ranks.tell_where))
        exit_codes = ranks.exit_codes()
    finally:
        end(ranks.roots(), patience=ranks.patience)
        end(_left(job), patience=0)
    if failure := first_failure(job, exit_codes, silent):
        raise_failure(replace(failure, message=failure.message + waited_for(job, failure) + recorded(job.folder)))
    result = job.folder.read_result() or {}
    if signals or result.get("status") == "interrupted":
        raise Interrupted(signals[0] if signals else result["signal"])


def _left(job: Job) -> list[int]:
    """Ranks that hang in no tree of ours any more, because what started them has ended before them."""
    beat = job.heartbeat
    return [pid for rank in job.watched if (pid := beat.pid(rank)) and beat.state(rank) not in (FAILED, FINISHED)]


def _watch(ranks: Ranks, job: Job, signals: list[int], watchdog: "Watchdog") -> list[int]:
    """Return when all have ended, or should have; and which ranks had gone without a word when one first failed."""
    silent, failed_at = None, 0.0
    while ranks.running():
        ranks.wait(POLL_SECONDS)
        if len(signals) > 1:
            raise Interrupted(signals[0])
        if signals:
            job.heartbeat.stop_signal = signals[0]
        if silent is None:
            job.check_timeout()
            watchdog.check()
            gone = gone_silently(ranks.exit_codes(), job)
            if gone or any(job.heartbeat.state(rank) == FAILED for rank in job.watched):
                silent, failed_at = gone, time.monotonic()
        elif time.monotonic() - failed_at > GRACE_SECONDS:
            break
    return gone_silently(ranks.exit_codes(), job) if silent is None else silent


def gone_silently(codes: Mapping[int, int | None], job: Job) -> list[int]:
    """The ranks whose processes have ended without a report. ``codes``: of ranks known to have ended."""
    beat = job.heartbeat
    gone = [r for r in job.watched if r in codes or (beat.pid(r) and not any(_existing([beat.pid(r)])))]
    return [rank for rank in gone if beat.state(rank) not in (FAILED, FINISHED)]  # its last word came before its end


class Watchdog:
    """Notices that no rank makes progress. ``timeout``: seconds without a beat; ``tell_where``: of ``Ranks``."""

    def __init__(self, job: Job, timeout: float, tell_where: Callable[[], None]):
        self._job, self._timeout, self._tell_where = job, timeout, tell_where
        self._beats, self._since = job.heartbeat.beats(), time.monotonic()

    def check(self) -> None:
        """Raises RunFailed after making each rank write its current stack to its log."""
        beats, now = self._job.heartbeat.beats(), time.monotonic()
        if beats != self._beats:
            self._beats, self._since = beats, now
        elif now - self._since > self._timeout:
            self._tell_where()
            time.sleep(0.5)
            failure = stalled(self._timeout)
            raise RunFailed(replace(failure, message=failure.message + waited_for(self._job, failure)))


def tell_where(heartbeat: Heartbeat) -> None:
    """Make each rank on this machine write its current stack to its log."""
    for rank in range(heartbeat.ranks):
        if pid := heartbeat.pid(rank):
            _send(pid, signal.SIGUSR1)


def recorded(folder: RunFolder) -> str:
    """Where NCCL's last calls are logged, for an error; empty if none of its collectives has timed out."""
    files = sorted(path.name for path in folder.logs.glob(f"{FLIGHT}*"))
    return f" NCCL's last calls: {folder.logs}/{files[0]}{' and others' * (len(files) > 1)}." if files else ""


def stalled(timeout: float) -> Failure:
    """The failure of a run that made no progress."""
    message = (
        f"no rank made a step, an evaluation batch or a checkpoint for {timeout:g} seconds. The end of "
        "logs/rank_*.log shows where each rank was. If the work needs longer, set launcher.stall_timeout."
    )
    return Failure(type="Stalled", message=message)


def first_failure(job: Job, exit_codes: Mapping[int, int | None], silent: list[int]) -> Failure | None:
    """The failure that caused the others: a rank that died without a report, else the earliest reported error.

    The other ranks' errors are mostly consequences, because their peer is gone. ``silent``: ranks that were gone when
    this was noticed; those that ended later were ended by the launcher.
    """
    reported = [each for each in job.folder.read_failures() if each.rank is None or each.rank in job.watched]
    died = sorted({*silent} - {failure.rank for failure in reported})
    if reported and not died:
        return reported[0]
    unfinished = [rank for rank in job.watched if job.heartbeat.state(rank) != FINISHED]
    for rank in died or unfinished:
        code = exit_codes.get(rank)
        message = f"{_how(code)}; see {job.folder}/logs" if code is None else _how(code)
        return Failure(rank=rank, exit_code=code, type="ProcessDied", message=message)
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


def raise_failure(failure: Failure) -> None:
    """Raises ConfigurationError if a rank found a mistake by the user, else RunFailed."""
    if failure.type == ConfigurationError.__name__:
        raise ConfigurationError(failure.message)
    raise RunFailed(failure)


def end(roots: Iterable[int], *, patience: float) -> None:
    """End processes and all their descendants: descendants at once, the roots when their time to clean up is over."""
    parents = list(_existing(roots))
    below = [child for parent in parents for child in _descendants(parent)]
    for process in below:
        _send(process.pid, signal.SIGKILL)
    alive = parents
    if patience:
        _, alive = psutil.wait_procs(alive, timeout=patience / 2)
        for process in alive:
            _send(process.pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(alive, timeout=patience / 2)
    for process in alive:
        _send(process.pid, signal.SIGKILL)
    psutil.wait_procs([*alive, *below], timeout=5)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return []


def _existing(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.NoSuchProcess:
            continue


def _send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)
