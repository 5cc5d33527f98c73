"""The replicas on a machine: if a rank dies or hangs, all ranks of its replica are restarted."""

import multiprocessing.connection
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from manyheads.launchers.causes import is_stopped
from manyheads.launchers.job import Job
from manyheads.launchers.processes import Ranks, end, send
from manyheads.launchers.torchft.lighthouse import Lighthouse
from manyheads.runner.errors import Failure, Kind
from manyheads.runner.run.heartbeat import FAILED, FINISHED, RUNNING, STARTING, Heartbeat

IN_VAIN = 3  # starts in a row without an update
FINAL = (Kind.MISTAKE, Kind.DIVERGED)  # a restart would repeat these
LAST_SECONDS = 5.0  # for the others, once the replica that writes the results has done so


class ReplicaProcesses(Ranks):
    """This machine's replicas.

    ``start``: starts a rank, with variables for the rendezvous of its replica; ``width``: the number of ranks of a
    replica; ``scratch``: a folder on this machine for the rendezvous; ``note``: called with the cause of each restart;
    ``lighthouse``: the one to keep alive from here; ``shown``: the heartbeat that ``supervise`` sees, in which
    restarted replicas never die.
    """

    def __init__(
        self,
        start: Callable[[int, Mapping[str, str]], BaseProcess],
        job: Job,
        *,
        width: int,
        max_restarts: int,
        hang_timeout: float,
        scratch: Path,
        note: Callable[[str], None],
        lighthouse: Lighthouse | None = None,
    ):
        super().__init__(job.heartbeat)
        self._start, self._job, self._lighthouse, self._note = start, job, lighthouse, note
        self._max_restarts, self._hang_timeout, self._scratch = max_restarts, hang_timeout, scratch
        self.shown = Heartbeat(None, ranks=job.ranks)
        self._restarts = 0
        self._given_up: dict[int, int | None] = {}
        self._beats = {rank: (0, time.monotonic()) for rank in job.watched}
        self._vain = dict.fromkeys(job.watched, 0)
        self._over: float | None = None
        self._processes: dict[int, BaseProcess] = {}
        self._replicas = [range(first, first + width) for first in job.watched[::width]]
        for ranks in self._replicas:
            self._begin(ranks)

    def roots(self) -> list[int]:
        processes = [*self._processes.values(), *([self._lighthouse.process] if self._lighthouse else [])]
        return [process.pid for process in processes if process.pid is not None]

    def running(self) -> bool:
        return any(process.exitcode is None for process in self._processes.values())

    def wait(self, seconds: float) -> None:
        """Return when a process ends, or after ``seconds``; restart dead replicas, kill hanging ranks."""
        alive = [process.sentinel for process in self._processes.values() if process.exitcode is None]
        if self._lighthouse is not None:
            alive.append(self._lighthouse.process.sentinel)
        multiprocessing.connection.wait(alive, timeout=seconds)
        self._job.heartbeat.stop_signal = self.shown.stop_signal
        if self._lighthouse is not None:
            self._lighthouse.keep()
        for ranks in self._replicas:
            self._look(ranks)
        self._show()

    def exit_codes(self) -> dict[int, int | None]:
        return self._given_up

    def _begin(self, ranks: range) -> None:
        """Start the ranks of a replica."""
        meeting = self._scratch / f"meeting_{ranks.start}_{self._restarts}"
        for rank in ranks:
            self._processes[rank] = self._start(rank, {"MANYHEADS_MEETING": str(meeting)})

    def _look(self, ranks: range) -> None:
        heartbeat, now = self._job.heartbeat, time.monotonic()
        dead = [rank for rank in ranks if self._processes[rank].exitcode is not None]
        if lost := [rank for rank in dead if heartbeat.state(rank) != FINISHED]:
            if not self._given_up.keys() & {*ranks}:
                self._died(ranks, lost)
            return
        alive = [rank for rank in ranks if rank not in dead]
        for rank in alive:
            if (count := heartbeat.read(rank)[0]) != self._beats[rank][0]:
                self._beats[rank], self._vain[ranks.start] = (count, now), 0
        silent = [rank for rank in alive if now - self._beats[rank][1] > self._hang_timeout]
        if silent := [rank for rank in silent if heartbeat.state(rank) in (RUNNING, FAILED)]:
            self._kill(min(silent, key=self._progress), alive)  # the others wait for it
        if self._is_over(now):
            for rank in alive:
                self._give_up(rank)

    def _progress(self, rank: int) -> tuple[bool, int]:
        """A rank's progress, to compare it with others of its replica."""
        pid = self._processes[rank].pid
        return not (pid and is_stopped(pid)), self._job.heartbeat.collective(rank)

    def _give_up(self, rank: int) -> None:
        """End a rank that is no longer needed; never the first one, which writes the results."""
        if rank:
            self._given_up[rank] = None
            self._say(rank, FINISHED)
            self._end([rank])

    def _is_over(self, now: float) -> bool:
        """Whether the results are written, and the others have had their time to end."""
        if self._job.heartbeat.state(0) != FINISHED:
            return False
        self._over = self._over or now
        return now - self._over > LAST_SECONDS

    def _kill(self, rank: int, alive: list[int]) -> None:
        """Kill a rank that hangs, after all ranks of its replica have written their stacks to their logs."""
        for survivor in alive:
            self._send(survivor, signal.SIGUSR1)
        time.sleep(0.2)
        self._send(rank, signal.SIGKILL)
        self._beats |= {survivor: (self._beats[survivor][0], time.monotonic()) for survivor in alive}

    def _died(self, ranks: range, dead: list[int]) -> None:
        """Restart a replica of which these ranks are dead, unless a restart would not help."""
        heartbeat = self._job.heartbeat
        failures = {reported.rank: reported for reported in self._job.failures()}
        # First a rank that reported nothing, then one whose failure is more than the loss of a peer.
        rank = min(
            dead, key=lambda candidate: candidate in failures and 1 + (failures[candidate].kind is Kind.LOST_PEER)
        )
        code, failure = self._processes[rank].exitcode, failures.get(rank)
        assert code is not None
        self._end(ranks)
        if self._is_needless(ranks):
            for peer in ranks:
                self._say(peer, FINISHED)
            return
        self._vain[ranks.start] += 1
        hopeless = failure is not None and failure.kind in FINAL
        if hopeless or self._vain[ranks.start] >= IN_VAIN or self._restarts >= self._max_restarts:
            self._given_up[rank] = code
            return
        self._restarts += 1
        self._note(_cause(rank, code, failure, width=len(ranks)))
        for peer in ranks:
            heartbeat.forget(peer)
            self._say(peer, STARTING)
            self._beats[peer] = heartbeat.read(peer)[0], time.monotonic()
        self._begin(ranks)

    def _is_needless(self, ranks: range) -> bool:
        """Whether a replica need not be restarted: the results are written, or the run was asked to stop."""
        heartbeat = self._job.heartbeat
        return heartbeat.state(0) == FINISHED or (ranks.start > 0 and bool(heartbeat.stop_signal))

    def _end(self, ranks: Iterable[int]) -> None:
        end([pid for rank in ranks if (pid := self._processes[rank].pid)], patience=0)

    def _send(self, rank: int, signum: int) -> None:
        if pid := self._processes[rank].pid:
            send(pid, signum)

    def _say(self, rank: int, state: int) -> None:
        self._job.heartbeat.write(rank, [self._job.heartbeat.read(rank)[0], state, 0, 0])

    def _show(self) -> None:
        """Show ``supervise`` the states of all ranks, without deaths that are followed by a restart."""
        for rank in self._job.watched:
            words = self._job.heartbeat.read(rank)
            if words[1] == FAILED and rank not in self._given_up:
                words[1] = RUNNING
            words[3] = 0  # collectives: comparable only within a replica
            self.shown.write(rank, words)


def _cause(rank: int, code: int, failure: Failure | None, *, width: int) -> str:
    who = f"replica {rank}" if width == 1 else f"replica {rank // width} (rank {rank})"
    if failure is not None:
        return f"{who} failed: {failure.type}: {failure.message}"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{who} {how}"
