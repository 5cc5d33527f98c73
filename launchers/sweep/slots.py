"""Several jobs at once: a process for each, since Hydra's job context is global, with its own devices."""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any

from manyheads.launchers import warm_server
from manyheads.launchers.environment import variables_set
from manyheads.launchers.processes import POLL_SECONDS
from manyheads.launchers.sweep.devices import Room, on_cores, shares_of_cores
from manyheads.launchers.sweep.job_progress import JobProgress, Start, run_job
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.errors import Interrupted
from manyheads.runner.machine import hardware
from manyheads.runner.machine.process import die_with_parent, handled_by, interrupt, received_signals
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.ledger import Entry
from manyheads.runner.run.run_folder import RunFolder


class Slot:
    """A process that runs one job after another."""

    def __init__(self, number: int, start: Start):
        context = multiprocessing.get_context("fork")  # this process has no threads, and Hydra's state in it is needed
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, start), name=f"slot {number}")
        self.process.start()
        theirs.close()
        self.entry: Entry | None = None

    def give(self, entry: Entry, environment: dict[str, str], cores: list[int], log: str) -> None:
        """Start a job. ``environment``: variables set while it runs; ``log``: path of the file for its output.

        ``cores``: those that it may use; empty: all.
        """
        self.entry = entry
        self.pipe.send((entry, environment, cores, log))

    def take(self) -> Entry:
        """Return how the job has ended; if the slot's process died, its job has failed."""
        entry, self.entry = self.entry, None
        assert entry is not None
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            return entry.now("failed", reason=f"the job's process ended with exit code {self.process.exitcode}")

    def end(self) -> None:
        """End the process; at once if something went wrong while a job ran in it."""
        if self.entry is not None:
            self.process.kill()
        else:
            self.pipe.send(None)
        self.pipe.close()
        self.process.join()


def _serve(pipe: Any, start: Start) -> None:
    """The slot's main function: receives jobs, and sends how they ended."""
    die_with_parent()
    os.setpgid(0, 0)  # the terminal's Ctrl-C is for the sweep alone, which passes it on
    with handled_by(interrupt):
        while (given := pipe.recv()) is not None:
            entry, environment, cores, log = given
            with variables_set(environment), on_cores(cores), output_to(log):
                done = run_job(entry, start)
            pipe.send(done)


@contextmanager
def output_to(path: str) -> Iterator[None]:
    """A context in which standard output and error of this process and its children go to a file."""
    make_folder(Path(path).parent)
    sys.stdout.flush()
    before = [os.dup(1), os.dup(2)]
    with open(path, "ab", buffering=0, opener=no_link) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, target in zip(before, (1, 2), strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)


class FirstOutput:
    """Watches for the first output of a run, written once an engine has found room for it."""

    def __init__(self, folder: RunFolder, run: RunConfig | None):
        name = run.launcher.first_output if run else None
        self._path = folder.logs / name if name else None
        self._before = self._bytes()

    def is_awaited(self) -> bool:
        """Whether the run still waits for room; False on this machine's devices."""
        return self._path is not None and self._bytes() == self._before

    def _bytes(self) -> int:
        return self._path.stat().st_size if self._path is not None and self._path.exists() else 0


class Slots:
    """As many slots as jobs may run at once, created when first needed.

    With ``jobs=auto``, only one job at a time waits for an engine to find room for it.
    """

    def __init__(self, count: int, start: Start, options: Options):
        self._cores = shares_of_cores(count)
        self._start = start
        self._room = Room(hardware.gpu_ids(), shared=options.share_devices)
        self._one_waits = options.jobs == "auto"
        self._slots: list[Slot | None] = [None] * count
        self._taken: dict[int, list[str]] = {}
        self._outputs: dict[int, FirstOutput] = {}

    def run(self, progress: JobProgress) -> None:
        """Run all jobs, as slots and devices become free; signals are forwarded to running jobs."""
        warm_server.stop()  # of an earlier job in this process; each slot starts its own
        try:
            with received_signals() as signals:
                passed_on = 0
                while True:
                    if not signals:
                        self._fill(progress)
                    for signum in signals[passed_on:]:
                        progress.stop(Interrupted(signum))
                        self._signal(signum)
                    passed_on = len(signals)
                    if not self._busy():
                        break
                    self._wait(progress)
                    progress.pruning.watch(self._running())
        finally:
            for slot in filter(None, self._slots):
                slot.end()

    def _running(self) -> list[Entry]:
        return [slot.entry for slot in self._slots if slot is not None and slot.entry is not None]

    def _busy(self) -> list[int]:
        return [number for number, slot in enumerate(self._slots) if slot is not None and slot.entry is not None]

    def _fill(self, progress: JobProgress) -> None:
        """Start every waiting job for which a slot and devices are free, in their order."""
        for entry in progress.waiting():
            idle = [number for number in range(len(self._slots)) if number not in self._busy()]
            if not idle or (self._one_waits and any(self._outputs[job].is_awaited() for job in self._busy())):
                return
            folder = RunFolder(progress.sweep / entry.folder)
            run = RunConfig.read(folder) if folder.config.exists() else None
            chooses = run is not None and run.launcher.takes_free_devices
            count = run.gpus_here if run and not chooses else 0
            gpus = self._room.take(count)
            if gpus is None:
                continue
            if not progress.may_start():
                self._room.give_back(gpus)
                return
            number = idle[0]
            self._taken[number], self._outputs[number] = gpus, FirstOutput(folder, run)
            slot = self._slots[number] = self._slots[number] or Slot(number, self._start)
            progress.started(entry)
            environment = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if count else {}
            cores = [] if chooses else self._cores[number]
            slot.give(entry, environment, cores, str(folder.path / "console.log"))

    def _wait(self, progress: JobProgress) -> None:
        """Wait for a moment, and record the jobs that have ended."""
        pipes = {slot.pipe: number for number in self._busy() if (slot := self._slots[number]) is not None}
        for pipe in connection.wait(list(pipes), timeout=POLL_SECONDS):
            number = pipes[pipe]  # type: ignore[index]
            slot = self._slots[number]
            assert slot is not None
            progress.ended(slot.take())
            self._room.give_back(self._taken.pop(number))
            if not slot.process.is_alive():
                self._slots[number] = None

    def _signal(self, signum: int) -> None:
        for number in self._busy():
            if (slot := self._slots[number]) is not None and slot.process.pid is not None:
                os.kill(slot.process.pid, signum)
