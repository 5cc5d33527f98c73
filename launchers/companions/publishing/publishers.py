"""The publishers of a run, one process per tracker, which neither delay nor end the run."""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.publishing.empty_folder import tell_unread
from manyheads.launchers.companions.publishing.publish_state import PublishState, state_file
from manyheads.launchers.companions.publishing.publisher import MAIN
from manyheads.runner.machine import invocation
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.program import PIPE, Process, Program
from manyheads.runner.run.refused_run import was_refused_by_ranks
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.runner.logger.logger_option import LoggerOption

END_SECONDS = 30.0  # after a run, for the rest to be published
log = logging.getLogger(__name__)


@contextmanager
def publishers(run: Accompanied, trackers: "Mapping[str, LoggerOption]") -> Iterator[None]:
    """A context in which the run is published to every tracker, and after which its outcome is."""
    folder, signals = run.folder, run.signals
    tell_unread(trackers.values())
    with scratch.folder() as private:
        given = {**os.environ, **run.variables, "TMPDIR": str(private)}  # removed even if a publisher is killed
        lock = scratch.kept(private)  # publishers outlive a parent that is killed
        try:
            started = {name: _start(folder, name, given, lock) for name in trackers}
        finally:
            os.close(lock)
        try:
            yield
        finally:
            for process in started.values():
                if process.stdin:
                    process.stdin.close()  # the sign that the run is over
            before, end = len(signals), time.monotonic() + END_SECONDS
            for name, process in started.items():
                while process.poll() is None and time.monotonic() < end and len(signals) == before:
                    time.sleep(0.02)
                _say(folder, name, process)


def _start(folder: RunFolder, name: str, environment: dict[str, str], lock: int) -> Process:
    make_folder(folder.logs)
    with open(folder.logs / f"publish_{name}.log", "ab", opener=no_link) as output:
        program = Program([sys.executable, "-m", MAIN, str(folder.path), name], environment, outlives=True)
        return program.start(stdin=PIPE, stdout=output, stderr=output, keep=[lock])


def _say(folder: RunFolder, name: str, process: Process) -> None:
    """Print in one line how publishing ended, and kill what is left of the process."""
    code = process.poll()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    state = PublishState.read(state_file(folder, name))
    if state.run is None and was_refused_by_ranks(folder):
        return
    if code == 0 and state.error is None:
        print(f"published to {name}{f': {state.url}' if state.url else ''}")
        return
    reason = state.error or (
        f"no answer within {END_SECONDS:g} seconds" if code is None else f"it exited with code {code}"
    )
    log.info("logger.%s: %s", name, reason)
    later = invocation.command("publish", folder, "--to", name)
    print(
        f"warning: logger.{name}: this run was only partly published: {reason}. To send the rest: {later}",
        file=sys.stderr,
    )
