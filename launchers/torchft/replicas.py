"""The replicas on a machine; one that dies or hangs is restarted."""

import math
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess

from manyheads.launchers.base import Job
from manyheads.launchers.ending import end, tell_where
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.processes import supervise
from manyheads.launchers.spawn import start_rank
from manyheads.launchers.torchft.lighthouse import Lighthouse
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.heartbeat import FAILED, FINISHED, RUNNING, STARTING, Heartbeat
from manyheads.runner.run.reports import report_file

IN_VAIN = 3  # starts in a row that come to no update
FINAL = (ConfigurationError.__name__, "FloatingPointError")  # which would happen again
HOST = "MANYHEADS_REPLICA_HOST"  # the variable that says which address of this machine the others reach
LAST_SECONDS = 5.0  # for the others, once the replica that writes the results has done so


def start_replicas(order: Message, job: Job, environment: dict[str, str], *, note: Callable[[str], None]) -> None:
    """Start the replicas of one of several machines, and those that die again, until all have ended.

    ``note``: called with the cause of each restart. Raises as ``launchers.processes.supervise`` does.
    """
    variables = {**environment, **order["replicas"], HOST: order["address"], "MANYHEADS_PARENT": str(os.getpid())}
    replicas = Replicas(
        lambda rank: start_rank(job, rank, variables, is_warm=order["is_warm"]),
        job,
        max_restarts=order["max_restarts"],
        hang_timeout=order["hang_timeout"],
        note=note,
    )
    supervise(replicas, replace(job, heartbeat=replicas.shown), stall_timeout=math.inf)


class Replicas:
    """This machine's replicas, with the interface of ``manyheads.launchers.processes.Ranks``.

    ``start``: starts a rank; ``note``: called with the cause of each restart; ``lighthouse``: the one to keep alive
    from here; ``shown``: the heartbeat that ``supervise`` sees, in which restarted replicas never die.
    """

    patience = 0.0

    def __init__(
        self,
        start: Callable[[int], BaseProcess],
        job: Job,
        *,
        max_restarts: int,
        hang_timeout: float,
        note: Callable[[str], None],
        lighthouse: Lighthouse | None = None,
    ):
        self._start, self._job, self._lighthouse, self._note = start, job, lighthouse, note
        self._max_restarts, self._hang_timeout = max_restarts, hang_timeout
        self.shown = Heartbeat(None, ranks=job.ranks)
        self._restarts = 0
        self._given_up: dict[int, int | None] = {}
        self._beats = {rank: (0, time.monotonic()) for rank in job.watched}
        self._vain = dict.fromkeys(job.watched, 0)
        self._over: float | None = None
        self._processes = {rank: start(rank) for rank in job.watched}

    def roots(self) -> list[int]:
        processes = [*self._processes.values(), *([self._lighthouse.process] if self._lighthouse else [])]
        return [process.pid for process in processes if process.pid is not None]

    def running(self) -> bool:
        return any(process.exitcode is None for process in self._processes.values())

    def wait(self, seconds: float) -> None:
        """Return when a process ends, or after ``seconds``; restart dead replicas, kill hanging ones."""
        alive = [process.sentinel for process in self._processes.values() if process.exitcode is None]
        if self._lighthouse is not None:
            alive.append(self._lighthouse.process.sentinel)
        multiprocessing.connection.wait(alive, timeout=seconds)
        self._job.heartbeat.stop_signal = self.shown.stop_signal
        if self._lighthouse is not None:
            self._lighthouse.keep()
        for rank in self._job.watched:
            self._look(rank)
        self._show()

    def exit_codes(self) -> dict[int, int | None]:
        return self._given_up

    def tell_where(self) -> None:
        tell_where(self._job.heartbeat)

    def _look(self, rank: int) -> None:
        heartbeat, process = self._job.heartbeat, self._processes[rank]
        if process.exitcode is not None:
            if heartbeat.state(rank) != FINISHED and rank not in self._given_up:
                self._died(rank, process.exitcode)
            return
        beats, since = self._beats[rank]
        now = time.monotonic()
        if (count := heartbeat.read(rank)[0]) != beats:
            self._beats[rank], self._vain[rank] = (count, now), 0
        elif now - since > self._hang_timeout and heartbeat.state(rank) == RUNNING:
            self._kill(rank)
        if rank and self._is_over(now):
            self._given_up[rank] = None
            self._say(rank, FINISHED)
            end([process.pid] if process.pid else [], patience=0)

    def _is_over(self, now: float) -> bool:
        """Whether the results are written, and the others have had their time to end."""
        if self._job.heartbeat.state(0) != FINISHED:
            return False
        self._over = self._over or now
        return now - self._over > LAST_SECONDS

    def _kill(self, rank: int) -> None:
        pid = self._processes[rank].pid
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)  # it writes where it is
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
        self._beats[rank] = self._beats[rank][0], time.monotonic()

    def _died(self, rank: int, code: int) -> None:
        """Start a replica again, unless that would be in vain."""
        heartbeat = self._job.heartbeat
        failure = next((each for each in self._job.failures() if each.rank == rank), None)
        if self._is_needless(rank):
            self._say(rank, FINISHED)
            return
        self._vain[rank] += 1
        hopeless = failure is not None and failure.type in FINAL
        if hopeless or self._vain[rank] >= IN_VAIN or self._restarts >= self._max_restarts:
            self._given_up[rank] = code
            return
        self._restarts += 1
        self._note(_cause(rank, code, failure))
        if heartbeat.path is not None:
            report_file(heartbeat.path.parent, rank).unlink(missing_ok=True)
        self._say(rank, STARTING)
        self._beats[rank] = heartbeat.read(rank)[0], time.monotonic()
        self._processes[rank] = self._start(rank)

    def _is_needless(self, rank: int) -> bool:
        """Whether a replica need not come back: the results are there, or the run was asked to stop."""
        heartbeat = self._job.heartbeat
        return heartbeat.state(0) == FINISHED or (rank > 0 and bool(heartbeat.stop_signal))

    def _say(self, rank: int, state: int) -> None:
        self._job.heartbeat.write(rank, [self._job.heartbeat.read(rank)[0], state, 0, 0])

    def _show(self) -> None:
        """What ``supervise`` may see: the states of all, but of no death that is not the end."""
        for rank in self._job.watched:
            words = self._job.heartbeat.read(rank)
            if words[1] == FAILED and rank not in self._given_up:
                words[1] = RUNNING
            self.shown.write(rank, words)


def _cause(rank: int, code: int, failure: Failure | None) -> str:
    if failure is not None:
        return f"replica {rank} failed: {failure.type}: {failure.message}"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"replica {rank} {how}"
