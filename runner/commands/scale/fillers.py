"""Trainings of the same run, alone, that use the quotas of ranks that are not started.

A rank is faster on a machine that is idle otherwise, as its caches and its memory are its own. Predictions are of ranks
that have equal machines, so here every number of ranks finds the same load beside it.
"""

import os
import signal
import sys
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
PATIENCE = 300.0  # seconds until all of them train


class Fillers:
    """Trainings, each in a control group of its own."""

    def __init__(self, groups: Sequence[Path]):
        self._groups = groups

    def run(self, count: int) -> None:
        """Let so many of them run, and the others stand still."""
        for number, group in enumerate(self._groups):
            self._signal(group, signal.SIGCONT if number < count else signal.SIGSTOP)

    def end(self) -> None:
        """End all of them, with their ranks."""
        for group in self._groups:
            self._signal(group, signal.SIGKILL)

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
        try:
            _wait(folders, started)
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
                message = "a training that is to use the quota of a rank that is not started does not begin"
                raise RunFailed(Failure(type="RuntimeError", message=message))
            time.sleep(0.1)
