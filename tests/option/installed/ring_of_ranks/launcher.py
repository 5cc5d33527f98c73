"""``launcher=polite``: each rank is a program of its own, which gives way to other programs. Without torch."""

import os
import subprocess
import sys
import time
from typing import Any, ClassVar

from manyheads.launchers.environment import file_rendezvous
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.processes import Ranks, supervise
from manyheads.runner.option.rules import whole


class PoliteOption(LauncherOption):
    rules: ClassVar = {"niceness": whole(0, 19)}
    without_effect = ("niceness",)

    def note(self) -> str:
        return "ranks give way to other programs"


class Polite(Launcher):
    """Ranks at a lower priority: ``niceness`` as of the program nice, 0 to 19."""

    def __init__(self, *, niceness: int, **options: Any):
        super().__init__(**options)
        self.niceness = niceness

    def launch(self, job: Job) -> None:
        with file_rendezvous() as meeting:
            programs = [self._start(job, rank, {**job.environment, **meeting}) for rank in job.watched]
            supervise(Programs(programs, job.heartbeat), job, stall_timeout=self.stall_timeout)

    def _start(self, job: Job, rank: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.ranks, "LOCAL_WORLD_SIZE": job.ranks}
        command = ["nice", "-n", str(self.niceness), sys.executable, "-m", job.main, str(job.folder.path)]
        return subprocess.Popen(command, env={**os.environ, **environment, **{k: str(v) for k, v in ranks.items()}})


class Programs(Ranks):
    """Ranks that are programs, one each."""

    def __init__(self, programs: list[subprocess.Popen[bytes]], heartbeat: Any):
        super().__init__(heartbeat)
        self._programs = programs

    def roots(self) -> list[int]:
        return [program.pid for program in self._programs]

    def running(self) -> bool:
        return any(program.poll() is None for program in self._programs)

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.running() and time.monotonic() < until:
            time.sleep(0.02)

    def exit_codes(self) -> dict[int, int]:
        codes = {rank: program.poll() for rank, program in enumerate(self._programs)}
        return {rank: code for rank, code in codes.items() if code is not None}
