"""The replicas of a run; one that dies or hangs is restarted."""

import multiprocessing.connection
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from manyheads.launchers.base import Job
from manyheads.launchers.ending import end, tell_where
from manyheads.launchers.torchft.lighthouse import Lighthouse
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.heartbeat import FAILED, FINISHED, RUNNING, STARTING, Heartbeat

IN_VAIN = 3  # starts in a row that come to no update
FINAL = (ConfigurationError.__name__, "FloatingPointError")  # which would happen again
LAST_SECONDS = 5.0  # for the others, once the replica that writes the results has done so


class Replicas:
    """The replicas, with the interface of ``manyheads.launchers.processes.Ranks``.

    ``start``: starts a rank; ``shown``: the heartbeat that ``supervise`` sees, in which restarted replicas never die.
    """

    patience = 0.0

    def __init__(
        self,
        start: Callable[[int], BaseProcess],
        job: Job,
        lighthouse: Lighthouse,
        *,
        max_restarts: int,
        hang_timeout: float,
    ):
        self._start, self._job, self._lighthouse = start, job, lighthouse
        self._max_restarts, self._hang_timeout = max_restarts, hang_timeout
        self.shown = Heartbeat(None, ranks=job.ranks)
        self._restarts: list[dict[str, Any]] = []
        self._given_up: dict[int, int | None] = {}
        self._beats = {rank: (0, time.monotonic()) for rank in range(job.ranks)}
        self._vain = dict.fromkeys(range(job.ranks), 0)
        self._over: float | None = None
        self._processes = [start(rank) for rank in range(job.ranks)]

    def roots(self) -> list[int]:
        processes = [*self._processes, self._lighthouse.process]
        return [process.pid for process in processes if process.pid is not None]

    def running(self) -> bool:
        return any(process.exitcode is None for process in self._processes)

    def wait(self, seconds: float) -> None:
        """Return when a process ends, or after ``seconds``; restart dead replicas, kill hanging ones."""
        alive = [process.sentinel for process in self._processes if process.exitcode is None]
        multiprocessing.connection.wait([*alive, self._lighthouse.process.sentinel], timeout=seconds)
        self._job.heartbeat.stop_signal = self.shown.stop_signal
        self._lighthouse.keep()
        for rank in range(self._job.ranks):
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
        heartbeat, folder = self._job.heartbeat, self._job.folder
        failure = next((each for each in folder.read_failures() if each.rank == rank), None)
        if self._is_needless(rank):
            self._say(rank, FINISHED)
            return
        self._vain[rank] += 1
        hopeless = failure is not None and failure.type in FINAL
        if hopeless or self._vain[rank] >= IN_VAIN or len(self._restarts) >= self._max_restarts:
            self._given_up[rank] = code
            return
        cause = _cause(rank, code, failure)
        self._restarts.append({"time": time.time(), "cause": cause})
        self._job.added["restarts"] = self._restarts
        print(f"{cause}; it is restarted, the others continue", flush=True)
        folder.rank_error(rank).unlink(missing_ok=True)
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
        for rank in range(self._job.ranks):
            words = self._job.heartbeat.read(rank)
            if words[1] == FAILED and rank not in self._given_up:
                words[1] = RUNNING
            self.shown.write(rank, words)


def _cause(rank: int, code: int, failure: Failure | None) -> str:
    if failure is not None:
        return f"replica {rank} failed: {failure.type}: {failure.message}"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"replica {rank} {how}"
