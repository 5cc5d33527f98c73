"""launcher=inline: the run's only rank is this process itself."""

import faulthandler
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from manyheads.launchers.background import in_background
from manyheads.launchers.base import Job, Launcher
from manyheads.launchers.causes import stalled
from manyheads.launchers.environment import file_rendezvous, variables_set
from manyheads.launchers.option import LauncherOption
from manyheads.launchers.signals import LAST_SECONDS, end_within, handled_by
from manyheads.launchers.spawn import Spawn
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.heartbeat import FAILED, Heartbeat
from manyheads.runner.run.result import finish

CLEANUP_SECONDS = 30.0  # of a rank that has failed


class InlineOption(LauncherOption):
    """Declares that the only rank is the parent itself."""

    one_process = True


class Inline(Launcher):
    """One rank in this process. A stalled rank can only be stopped by ending the process."""

    def apart(self) -> Launcher:
        """The rank in a separate process, forked from one that has imported torch."""
        return Spawn(
            name=self.name,
            nproc_per_node=self.ranks,
            threads_per_rank=self.threads,
            stall_timeout=self.stall_timeout,
            timeout=self.timeout,
            wait_policy=self.wait_policy,
            warm=True,
        )

    def launch(self, job: Job) -> None:
        from manyheads.runner.loop.main import run_rank

        with (
            file_rendezvous() as rendezvous,
            variables_set({**job.environment, **rendezvous}),
            in_background(partial(self._watch, job), name="stall watchdog"),
            stopping(job.heartbeat),
        ):
            if job.signals:
                job.heartbeat.stop_signal = job.signals[0]
            try:
                run_rank(job.folder, rank=0, local_rank=0, world_size=1, apart=False)
            except (ConfigurationError, Interrupted):
                raise
            except (Exception, SystemExit) as error:
                raise RunFailed(Failure.of(error, rank=0)) from error
        result = job.folder.read_result() or {}
        if job.heartbeat.stop_signal or result.get("status") == "interrupted":
            raise Interrupted(job.heartbeat.stop_signal or result["signal"])

    def _watch(self, job: Job, done: threading.Event) -> None:
        seen, since = (0, 0), time.monotonic()
        while not done.wait(min(1.0, self.stall_timeout)):
            try:
                job.check_timeout()
                has_failed = job.heartbeat.state(0) == FAILED
                if (now := (job.heartbeat.beats(), int(has_failed))) != seen:
                    seen, since = now, time.monotonic()
                elif has_failed and time.monotonic() - since > CLEANUP_SECONDS:
                    raise RunFailed(job.failures()[0])
                elif time.monotonic() - since > self.stall_timeout:
                    raise RunFailed(stalled(self.stall_timeout))
            except RunFailed as reason:
                self._end(job, reason)

    def _end(self, job: Job, reason: RunFailed) -> None:
        try:
            with open(job.folder.rank_log(0), "a", opener=no_link) as file:
                faulthandler.dump_traceback(file)
            assert job.run is not None
            finish(job.folder, job.run, time.monotonic() - job.started, reason)
        finally:  # also where the disk is full
            os.write(2, f"error: {reason}\n".encode())
            os._exit(reason.exit_code)


@contextmanager
def stopping(heartbeat: Heartbeat) -> Iterator[None]:
    """Handle SIGINT and SIGTERM: the first asks the loop to stop after the step, the second ends the run at once.

    Before the first step nothing is lost, so the first one does that.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        is_second = heartbeat.stop_signal != 0
        heartbeat.stop_signal = heartbeat.stop_signal or signum
        if is_second or not heartbeat.beats():
            end_within(LAST_SECONDS)
            raise Interrupted(heartbeat.stop_signal)

    with handled_by(handle):
        yield
