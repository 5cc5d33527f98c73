"""Single-rank trainings of the same run that use the quotas of ranks that are not started.

A rank is faster on an otherwise idle machine, where it does not share caches and memory bandwidth. Predictions are for
ranks on equal machines, so here the load is the same for every number of ranks.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.runner.answers.measure.subject import measured
from manyheads.runner.errors import Failure, RunFailed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import scratch
from manyheads.runner.run.program import DISCARD, Process, Program
from manyheads.runner.run.run_folder import RunFolder
from tests import cpu_quota

ENDLESS = 10**6  # epochs
POLL = 0.05  # seconds
LINES = 3  # of what a training printed that are shown if it fails
PATIENCE = 300.0  # seconds to wait until all of them train


class Fillers:
    """The trainings, each in its own control group."""

    def __init__(self, groups: Sequence[Path]):
        self._groups = groups

    @contextmanager
    def beside(self, ranks: int) -> Iterator[None]:
        """A context in which they use the quotas that ``ranks`` ranks leave, as soon as all ranks have entered theirs.

        Until then they are stopped, so that the ranks start sooner. At its end it raises RunFailed if they
        could not be continued.
        """
        ended = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(self._wait, ranks, ended)
            try:
                yield
            finally:
                ended.set()
                wait([waiting])
                self.pause()
        try:
            waiting.result()
        except OSError as error:
            message = f"the trainings beside the ranks could not be continued: {error}"
            raise RunFailed(Failure(type=type(error).__name__, message=message)) from error

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
        """Stop all of them, until ``beside`` continues them."""
        self._all(signal.SIGSTOP)

    def end(self) -> None:
        """Kill all of them, with their ranks."""
        self._all(signal.SIGKILL)

    def _signal(self, group: Path, number: signal.Signals) -> None:
        with suppress(OSError):
            for pid in map(int, (group / "cgroup.procs").read_text().split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


@contextmanager
def fillers(alone: RunConfig, count: int) -> Iterator[Fillers]:
    """Start ``count`` trainings of a run on one device, and stop them once all of them train.

    Only within ``cpu_quota.quotas``. Raises RunFailed if one does not begin to train.
    """
    endless = measured(alone).changed(trainer={"epochs": ENDLESS, "max_steps": None, "stop_after": None})
    with scratch.folder() as own:
        folders = [RunFolder(own / str(number)) for number in range(count)]
        for folder in folders:
            folder.write_config(endless.written)
        groups = [cpu_quota.group(f"filler{number}") for number in range(count)]
        found, started = Fillers(groups), list[Process]()
        try:
            for folder, group in zip(folders, groups, strict=True):
                started.append(_started(folder, group))
                # To the core of the rank that it replaces.
                cpu_quota.pin(count + 1 - len(started), started[-1].pid)
            _wait(folders, started)
            found.pause()
            yield found
        finally:
            found.end()
            for each in started:
                each.kill()  # it may not have joined its group yet
                each.wait()


def _started(folder: RunFolder, group: Path) -> Process:
    """Start the run in a process that joins the group first."""
    enter = 'echo 0 > "$0" && exec "$@"', str(group / "cgroup.procs")
    resume = sys.executable, "-m", "manyheads.runner", "resume", str(folder.path)
    with open(_errors(folder), "wb") as errors:
        return Program(("sh", "-c", *enter, *resume)).start(stdout=DISCARD, stderr=errors)


def _wait(folders: Sequence[RunFolder], started: Sequence[Process]) -> None:
    until = time.monotonic() + PATIENCE
    for folder, process in zip(folders, started, strict=True):
        while not (folder.steps.exists() and folder.steps.read_text().count("\n") > 1):
            if process.poll() is not None or time.monotonic() > until:
                message = f"a training that uses the quota of an absent rank did not start: {_reason(folder, process)}"
                raise RunFailed(Failure(type="RuntimeError", message=message))
            time.sleep(0.1)


def _reason(folder: RunFolder, process: Process) -> str:
    """Why a training does not train: what it recorded, else the last lines that it printed."""
    if process.returncode is None:
        return f"it took more than {PATIENCE:.0f} s"
    if error := (folder.read_result() or {}).get("error"):
        return str(error.get("message"))
    said = [line for line in _errors(folder).read_text(errors="replace").splitlines() if line.strip()]
    return " ".join(said[-LINES:]) or f"it ended with exit code {process.returncode}"


def _errors(folder: RunFolder) -> Path:
    """The file of what a training prints on standard error, beside its folder."""
    return folder.path.with_suffix(".errors")
