"""Trainings of the same run, alone, that use the quotas of ranks that are not started.

A rank is faster on a machine that is idle otherwise, as its caches and its memory are its own. Predictions are of ranks
that have equal machines, so here every number of ranks finds the same load beside it.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.runner.commands.explain.explain_run import measured
from manyheads.runner.commands.scale import cpu_quota
from manyheads.runner.errors import Failure, RunFailed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import scratch
from manyheads.runner.run.program import DISCARD, Process, Program
from manyheads.runner.run.run_folder import RunFolder

ENDLESS = 10**6  # epochs
POLL = 0.05  # seconds
PATIENCE = 300.0  # seconds until all of them train


class Fillers:
    """Trainings, each in a control group of its own."""

    def __init__(self, groups: Sequence[Path]):
        self._groups = groups

    @contextmanager
    def beside(self, ranks: int) -> Iterator[None]:
        """Meanwhile so many of them run that all quotas are used, from when all ranks have entered theirs.

        Until then they stand still, so that the ranks start sooner.
        """
        ended = threading.Event()
        waiting = threading.Thread(target=self._wait, args=(ranks, ended))
        waiting.start()
        try:
            yield
        finally:
            ended.set()
            waiting.join()
            self.pause()

    def _wait(self, ranks: int, ended: threading.Event) -> None:
        groups = [cpu_quota.group(str(rank)) for rank in range(ranks)]
        while not ended.wait(POLL):
            if all((group / "cgroup.procs").read_text() for group in groups):
                for group in self._groups[: len(self._groups) + 1 - ranks]:
                    self._signal(group, signal.SIGCONT)
                return

    def _all(self, number: signal.Signals) -> None:
        for group in self._groups:
            self._signal(group, number)

    def pause(self) -> None:
        """Let all of them stand still."""
        self._all(signal.SIGSTOP)

    def end(self) -> None:
        """End all of them, with their ranks."""
        self._all(signal.SIGKILL)

    def _signal(self, group: Path, number: signal.Signals) -> None:
        with suppress(OSError):
            for pid in map(int, (group / "cgroup.procs").read_text().split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


@contextmanager
def fillers(alone: RunConfig, count: int) -> Iterator[Fillers]:
    """So many trainings of a run on one device, all of which train. Raises RunFailed if one does not begin to.

    Only within ``cpu_quota.quotas``.
    """
    endless = measured(alone).changed(trainer={"epochs": ENDLESS, "max_steps": None, "stop_after": None})
    with scratch.folder() as own:
        folders = [RunFolder(own / str(number)) for number in range(count)]
        for folder in folders:
            folder.write_config(endless.written)
        groups = [cpu_quota.group(f"filler{number}") for number in range(count)]
        found, started = Fillers(groups), [_started(*each) for each in zip(folders, groups, strict=True)]
        for number, process in enumerate(started):
            cpu_quota.pin(count - number, process.pid)  # on the core of the rank in whose place it is
        try:
            _wait(folders, started)
            found.pause()
            yield found
        finally:
            found.end()
            for each in started:
                each.wait()


def _started(folder: RunFolder, group: Path) -> Process:
    """The run, in a process that is in the group before it begins."""
    enter = 'echo 0 > "$0" && exec "$@"', str(group / "cgroup.procs")
    resume = sys.executable, "-m", "manyheads.runner", "resume", str(folder.path)
    return Program(("sh", "-c", *enter, *resume)).start(stdout=DISCARD, stderr=DISCARD)


def _wait(folders: Sequence[RunFolder], started: Sequence[Process]) -> None:
    until = time.monotonic() + PATIENCE
    for folder, process in zip(folders, started, strict=True):
        while not (folder.steps.exists() and folder.steps.read_text().count("\n") > 1):
            if process.poll() is not None or time.monotonic() > until:
                message = "a training that should use the quota of a missing rank did not start"
                raise RunFailed(Failure(type="RuntimeError", message=message))
            time.sleep(0.1)
