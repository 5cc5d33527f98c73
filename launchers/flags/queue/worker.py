"""A worker runs the runs of the queue, one after the other, each as soon as there is room for it."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.launchers.agent_program import as_module
from manyheads.launchers.companions import refuse_start
from manyheads.launchers.companions.room.registry import current_claims
from manyheads.launchers.flags.queue.entries import QueueEntry, RunQueue, fail, has_ended, mark, status_of
from manyheads.runner.errors import BudgetSpent, ExitCode, Failure, Interrupted, Kind, WaitExpired, warn
from manyheads.runner.machine import invocation
from manyheads.runner.run.program import Program, ended_within
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import tell

POLL_SECONDS = 0.5
QUEUED_RUN = "manyheads.launchers.flags.queue.queued_run"


@dataclass(frozen=True)
class TakenRun:
    """A run that this worker runs. ``descriptor``: of its locked file in the queue."""

    entry: QueueEntry
    descriptor: int

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has taken it out of the queue meanwhile."""
        return not os.fstat(self.descriptor).st_nlink


class Worker:
    """Runs what is in the queue. ``signals``: received by this process; the first stops its run with a checkpoint."""

    program: Sequence[str] = (sys.executable, *as_module(QUEUED_RUN))

    def __init__(self, queue: RunQueue, signals: Sequence[int]):
        self._queue, self._signals = queue, signals
        self.ended: list[tuple[RunFolder, str]] = []  # with their statuses

    def work(self, *, until_empty: bool) -> None:
        """Run one after the other. ``until_empty``: return once no run waits, rather than wait for more.

        Raises Interrupted; BudgetSpent or WaitExpired if a run may not begin or go on now, and ConfigurationError if
        none may, all of which leave it in the queue; and as ``RunQueue.turn``.
        """
        is_idle = False
        with keeping("queue", "a run that was stopped is still in it, and continues from its checkpoint"):
            while not self._signals:
                taken, is_empty = self._next()
                if taken is not None:
                    is_idle = False
                    try:
                        refuse_start(taken.entry.run.path)  # here, since a run that is refused itself has failed
                        self._run(taken)
                    finally:
                        os.close(taken.descriptor)
                elif is_empty and until_empty:
                    return
                else:
                    if is_empty and not is_idle:
                        self._say("no run waits in the queue: waiting for one")
                    is_idle = is_empty
                    time.sleep(POLL_SECONDS)
            raise Interrupted(self._signals[0])

    def _next(self) -> tuple[TakenRun | None, bool]:
        """The next run, or None if there is none now; and whether none waits.

        Only one run at a time waits for devices, so that runs ask for them in the order of the queue.
        """
        with self._queue.turn():
            claims, _ = current_claims()
            holding = {claim.run for claim in claims if claim.devices}
            claimed = {claim.run for claim in claims}
            is_empty = True
            for entry in self._queue.entries():
                if not entry.is_taken and self._is_left(entry):
                    is_empty = False
                    if entry.path not in claimed:  # else it is run apart from the queue, or ranks of it have yet to end
                        return TakenRun(entry, self._queue.take(entry)), False
                elif entry.is_taken and entry.path not in holding:
                    return None, False
            return None, is_empty

    def _is_left(self, entry: QueueEntry) -> bool:
        """Whether a run is still to be run. If not, it leaves the queue."""
        run = entry.run
        if not run.config.exists():
            warn(f"{run} was queued, but holds no run any more")
        elif not run.is_own():
            warn(f"{run} was queued, but its config is not the one that you froze, so it is not run")
        elif not has_ended(run):
            return True
        self._queue.remove(entry)
        return False

    def _run(self, taken: TakenRun) -> None:
        """Run a run to its end. Raises BudgetSpent and WaitExpired."""
        run, sent = taken.entry.run, 0
        self._say(f"{run}: begins")
        environment = {**os.environ, "PYTHONPATH": invocation.import_path()}
        program = Program([*self.program, str(run.path), str(taken.descriptor)], environment)
        with program.start(keep=[taken.descriptor]) as process:
            while not ended_within(process, POLL_SECONDS):
                asked = [*self._signals] or ([signal.SIGTERM] if taken.is_cancelled else [])
                for signum in asked[sent:]:
                    process.send_signal(signum)
                sent = max(sent, len(asked))
        with self._queue.turn():
            self._conclude(taken, process.returncode)
        self._say(f"{run}: {self.ended[-1][1]}")

    def _conclude(self, taken: TakenRun, code: int) -> None:
        """Record what became of a run whose process has ended with ``code``. Raises BudgetSpent and WaitExpired.

        One that this worker was told to stop, or that may not run now, stays in the queue; one that somebody else has
        stopped leaves it.
        """
        run, is_barred = taken.entry.run, code in (ExitCode.EXPIRED, ExitCode.SPENT)
        is_unsettled = not has_ended(run)
        if taken.is_cancelled:
            if is_unsettled:
                mark(run, "interrupted")
        elif is_unsettled and (self._signals or is_barred or status_of(run) == "completed"):
            mark(run, "queued")
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            fail(run, Failure(Kind.PROCESS_DIED, exit_code=code, message=f"the process of this run {how}"))
            self._queue.remove(taken.entry)
        self.ended.append((run, status_of(run) or "interrupted"))
        if is_barred:  # the run's process has said more
            stays = f"{run} stays in the queue:"
            if code == ExitCode.SPENT:
                raise BudgetSpent(f"{stays} a budget is spent.")
            raise WaitExpired(f"{stays} its wait for devices has expired.")

    @staticmethod
    def _say(text: str) -> None:
        tell(text)
        sys.stdout.flush()  # also into a log
