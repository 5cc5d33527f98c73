"""launcher=spawn: one process of Python's multiprocessing for each rank on this machine.

Warm, the ranks are forked from a server that has imported torch once. Cold, each rank is a fresh interpreter (start
method "spawn", what torch.multiprocessing.spawn uses).
"""

import importlib
import multiprocessing
import multiprocessing.connection
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar

from manyheads.launchers import warm_server as warm
from manyheads.launchers.environment import file_rendezvous
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import Ahead, LauncherOption
from manyheads.launchers.processes import Ranks, supervise
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat


class SpawnOption(LauncherOption):
    """Declares that nothing but Python is needed."""

    without_effect: ClassVar[tuple[str, ...]] = ("warm",)
    warm: bool

    def ahead(self, *, in_sweep: bool) -> Ahead | None:
        return warm if self.warm else None

    def note(self) -> str:
        return "the quickest start on one machine"


class Spawn(Launcher):
    """Ranks as child processes, which meet through a file, so that ports cannot clash."""

    def __init__(self, *, warm: bool, **options: Any):
        super().__init__(**options)
        self.warm = warm

    def prepare(self, environment: Mapping[str, str], imports: Sequence[str]) -> None:
        if self.warm:
            warm.start(environment, imports)

    def refuse_early(self, run: RunConfig, environment: Mapping[str, str]) -> None:
        if self.warm and run.names_own_code:
            warm.check(run, environment)

    def launch(self, job: Job) -> None:
        with file_rendezvous() as rendezvous:
            environment = {**job.environment, **rendezvous}
            processes = [start_rank(job, rank, environment, is_warm=self.warm) for rank in job.watched]
            supervise(SpawnedRanks(processes, job.heartbeat), job, stall_timeout=self.stall_timeout)


def start_rank(job: Job, rank: int, environment: Mapping[str, str], *, is_warm: bool) -> BaseProcess:
    """Start one of the ranks that this process watches."""
    ranks = job.watched
    places = {
        "RANK": rank,
        "LOCAL_RANK": ranks.index(rank),
        "WORLD_SIZE": job.ranks,
        "LOCAL_WORLD_SIZE": len(ranks),
    }
    environment = {**environment, **{name: str(value) for name, value in places.items()}}
    if is_warm:
        return warm.fork(_rank, job.main, str(job.folder.path), environment=environment, signals=job.signals)
    return warm.fresh(_rank, job.main, str(job.folder.path), environment=environment)


def _rank(main: str, folder: str) -> None:
    multiprocessing.set_start_method(None, force=True)  # its children need not be started as it was
    importlib.import_module(main).main(folder)


class SpawnedRanks(Ranks):
    """Ranks that are child processes, one each."""

    def __init__(self, processes: list[BaseProcess], heartbeat: Heartbeat):
        super().__init__(heartbeat)
        self._processes = processes

    def roots(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]

    def running(self) -> bool:
        return any(process.exitcode is None for process in self._processes)

    def wait(self, seconds: float) -> None:
        alive = [process.sentinel for process in self._processes if process.exitcode is None]
        multiprocessing.connection.wait(alive, timeout=seconds)

    def exit_codes(self) -> dict[int, int]:
        codes = {rank: process.exitcode for rank, process in enumerate(self._processes)}
        return {rank: code for rank, code in codes.items() if code is not None}
