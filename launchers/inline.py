"""launcher=inline: the run's only rank is this process itself."""

import faulthandler
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

from manyheads.launchers.causes import error_of, first_failure
from manyheads.launchers.environment import file_rendezvous, variables_set
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import Ahead, LauncherOption
from manyheads.launchers.processes import Ranks, Watchdog, watch
from manyheads.launchers.result import finish
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed
from manyheads.runner.machine.process import LAST_SECONDS, end_within, handled_by, in_background
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.rank_info import RankInfo


class InlineOption(LauncherOption):
    """Declares that the only rank is the parent itself."""

    one_process = True

    def ahead(self, *, in_sweep: bool) -> Ahead | None:
        from manyheads.launchers import warm_server  # not needed for a single run

        return warm_server if in_sweep else None  # whose jobs are child processes


class Inline(Launcher):
    """One rank in this process. A stalled rank can only be stopped by ending the process.

    ``grace``: seconds that it has after a failure.
    """

    grace = 30.0

    def as_child_process(self) -> Launcher:
        """The rank in a separate process, forked from one that has imported torch."""
        from manyheads.launchers.spawn import Spawn  # not needed for a single run

        return Spawn(**self.common_arguments(), warm=True)

    def launch(self, job: Job) -> None:
        with file_rendezvous() as rendezvous:
            self.train(job, RankInfo(0, 0, 1), rendezvous)

    def train(self, job: Job, position: RankInfo, variables: Mapping[str, str]) -> None:
        """Train as rank 0, at this ``position``. ``variables``: by which the ranks meet. Raises as ``launch``."""
        from manyheads.runner.loop.rank_main import run_rank

        with (
            variables_set({**job.environment, **variables}),
            in_background(partial(self._watch, job), name="watchdog"),
            stopping(job.heartbeat, job.signals),
        ):
            if job.signals:
                job.heartbeat.stop_signal = job.signals[0]
            try:
                run_rank(job.folder, **position._asdict(), apart=False)
            except (ConfigurationError, Interrupted):
                raise
            except (Exception, SystemExit) as error:
                raise RunFailed(Failure.of(error, rank=0)) from error
        result = job.folder.read_result() or {}
        if job.heartbeat.stop_signal or result.get("status") == "interrupted":
            raise Interrupted(job.heartbeat.stop_signal or result["signal"])

    def _watch(self, job: Job, done: threading.Event) -> None:
        ranks = OwnRank(job, done, pause=min(1.0, self.stall_timeout))
        ranks.grace = self.grace
        try:
            silent = watch(ranks, job, [], Watchdog(job, self.stall_timeout, ranks.dump_stacks))
            if not done.is_set() and (failure := first_failure(job, {}, silent)):
                raise error_of(failure)
        except (RunFailed, ConfigurationError) as reason:
            if not isinstance(reason, RunFailed) or reason.failure.kind is not Kind.STALLED:  # dumped by the watchdog
                ranks.dump_stacks()
            self._end(job, reason)

    def _end(self, job: Job, reason: RunFailed | ConfigurationError) -> None:
        try:
            assert job.run is not None
            finish(job.folder, job.run.as_planned, time.monotonic() - job.started, reason)
        finally:  # even if the disk is full
            os.write(2, f"error: {reason}\n".encode())
            os._exit(reason.exit_code)


class OwnRank(Ranks):
    """The rank that is this process, watched by one of its threads.

    ``done``: set when the rank has ended; ``pause``: seconds between two checks, which take computing time from it.
    """

    def __init__(self, job: Job, done: threading.Event, *, pause: float):
        super().__init__(job.heartbeat)
        self._log, self._done, self._pause = job.folder.rank_log(0), done, pause

    def running(self) -> bool:
        return not self._done.is_set()

    def wait(self, seconds: float) -> None:
        self._done.wait(max(seconds, self._pause))

    def dump_stacks(self) -> None:
        with suppress(OSError), open(self._log, "a", opener=no_link) as file:
            faulthandler.dump_traceback(file)


@contextmanager
def stopping(heartbeat: Heartbeat, before: Sequence[int]) -> Iterator[None]:
    """Handle signals: the first asks the loop to stop after the step, the second ends the run at once.

    Before the first step nothing can be lost, so then the first signal ends the run at once. ``before``: signals that
    this process has received already; the heartbeat may have one of another rank, which a launcher signals as well.
    """
    received = [*before]

    def handle(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        heartbeat.stop_signal = heartbeat.stop_signal or signum
        if received[1:] or not heartbeat.beats():
            end_within(LAST_SECONDS)
            raise Interrupted(heartbeat.stop_signal)

    with handled_by(handle):
        yield
