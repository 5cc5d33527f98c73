"""Watch started ranks: forward signals, notice failures and stalls, and end everything when one rank fails."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import psutil

from manyheads.launchers.causes import error_of, first_failure, recorded, stalled, stopped, waited_for
from manyheads.launchers.job import Job
from manyheads.runner.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.run.heartbeat import FAILED, FINISHED, Heartbeat

POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0  # for the other ranks, and the launcher's own clean-up, once one rank has failed


class Ranks:
    """The processes that a launcher has started and supervises. ``heartbeat``: of the ranks on this machine.

    ``patience``: seconds that the root processes get to clean up after their ranks; ``patience_to_report``: the same
    after a failure, whose exit code only they may know; ``grace``: seconds that the other ranks get to report their
    own failures once one has failed.
    """

    patience = 0.0
    patience_to_report = 0.0
    grace = GRACE_SECONDS

    def __init__(self, heartbeat: Heartbeat):
        self._heartbeat = heartbeat

    def roots(self) -> list[int]:
        """Ids of the processes that the launcher itself started."""
        return []

    def running(self) -> bool:
        """Whether there is still something to wait for."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Return when a process ends, or after ``seconds``."""
        raise NotImplementedError

    def exit_codes(self) -> Mapping[int, int | None]:
        """Exit code of each rank that has ended; negative: the signal that killed it; None: unknown."""
        return {}

    def refusal(self) -> ConfigurationError | None:
        """The user's mistake that another process has found before the ranks could; None if there is none so far."""
        return None

    def dump_stacks(self) -> None:
        """Make each rank write its current stack to its log."""
        dump_stacks(self._heartbeat)


def supervise(ranks: Ranks, job: Job, *, stall_timeout: float) -> None:
    """Wait for the end of a run. Raises RunFailed, ConfigurationError or Interrupted; leaves no process."""
    signals, patience = job.signals, ranks.patience
    try:
        silent = watch(ranks, job, signals, Watchdog(job, stall_timeout, ranks.dump_stacks))
        exit_codes, patience = ranks.exit_codes(), ranks.patience_to_report
    except ConfigurationError:
        patience = 0.0  # no rank has begun
        raise
    finally:
        end(ranks.roots(), patience=patience)
        end(_left(job), patience=0)
    exit_codes = {**ranks.exit_codes(), **exit_codes}  # an agent reports only when its ranks have ended
    if failure := first_failure(job, exit_codes, silent):
        if details := waited_for(job, failure) + recorded(job.folder):
            failure = replace(failure, message=failure.message.rstrip(".") + "." + details)
        raise error_of(failure)
    result = job.folder.read_result() or {}
    if signals or result.get("status") == "interrupted":
        raise Interrupted(signals[0] if signals else result["signal"])


def _left(job: Job) -> list[int]:
    """Ranks that no longer descend from this process, because the process that started them ended first."""
    beat = job.heartbeat
    return started_here(beat.pid(rank) for rank in job.watched if beat.state(rank) not in (FAILED, FINISHED))


def watch(ranks: Ranks, job: Job, signals: list[int], watchdog: "Watchdog") -> list[int]:
    """Wait until all ranks have ended or must be ended; returns those that had exited silently when one first failed.

    Raises RunFailed for a run that stalls or takes too long, Interrupted after ``signals``, ConfigurationError for a
    run that its ranks will refuse.
    """
    silent, failed_at = None, 0.0
    while ranks.running():
        ranks.wait(POLL_SECONDS)
        if not job.heartbeat.beats() and (refused := ranks.refusal()):
            raise refused
        if signals and (len(signals) > 1 or not job.heartbeat.beats()):  # before the first update nothing is lost
            raise Interrupted(signals[0])
        if signals:
            job.heartbeat.stop_signal = signals[0]
        if silent is None:
            job.check_timeout()
            watchdog.check()
            gone = gone_silently(ranks.exit_codes(), job)
            if gone or any(job.heartbeat.state(rank) == FAILED for rank in job.watched):
                silent, failed_at = gone, time.monotonic()
        elif time.monotonic() - failed_at > ranks.grace:
            break
    return gone_silently(ranks.exit_codes(), job) if silent is None else silent


def gone_silently(codes: Mapping[int, int | None], job: Job) -> list[int]:
    """The ranks whose processes have ended without a report. ``codes``: of ranks known to have ended."""
    beat = job.heartbeat
    gone = [r for r in job.watched if r in codes or (beat.pid(r) and not any(existing([beat.pid(r)])))]
    return [rank for rank in gone if beat.state(rank) not in (FAILED, FINISHED)]  # recorded before its end


class Watchdog:
    """Notices that no rank makes progress. ``timeout``: seconds without a beat; ``dump_stacks``: as in ``Ranks``."""

    def __init__(self, job: Job, timeout: float, dump_stacks: Callable[[], None]):
        self._job, self._timeout, self._dump_stacks = job, timeout, dump_stacks
        self._beats, self._since = job.heartbeat.beats(), time.monotonic()

    def check(self) -> None:
        """Raises RunFailed after making each rank write its current stack to its log."""
        beats, now = self._job.heartbeat.beats(), time.monotonic()
        if beats != self._beats:
            self._beats, self._since = beats, now
        elif now - self._since > self._timeout:
            self._dump_stacks()
            time.sleep(0.5)
            failure = stalled(self._timeout)
            who = stopped(self._job) or waited_for(self._job, failure)
            raise RunFailed(replace(failure, message=failure.message + who))


def dump_stacks(heartbeat: Heartbeat) -> None:
    """Make each rank on this machine write its current stack to its log."""
    for pid in started_here(map(heartbeat.pid, range(heartbeat.ranks))):
        send(pid, signal.SIGUSR1)


def started_here(pids: Iterable[int]) -> list[int]:
    """Those of the ids in a heartbeat whose processes descend from this one, or once did, as their environment says.

    Others are never signalled, whatever a rank, or somebody who can write to the heartbeat, has written there.
    """
    return [process.pid for process in existing(filter(None, pids)) if _is_started_here(process)]


def _is_started_here(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        if any(parent.pid == os.getpid() for parent in process.parents()):
            return True
        return process.environ().get("MANYHEADS_PARENT") == str(os.getpid())
    return False


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
