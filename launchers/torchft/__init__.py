"""launcher=torchft: replicas of one process or several, restarted when one dies, and torchft's lighthouse."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar

from manyheads.launchers.job import Job
from manyheads.launchers.node_settings import KEYS, NodeSettings
from manyheads.launchers.processes import supervise
from manyheads.launchers.spawn import Spawn, SpawnOption, start_rank
from manyheads.launchers.torchft.lighthouse import Lighthouse
from manyheads.launchers.torchft.replica_processes import ReplicaProcesses
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import number
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.replicated import HOST, missing
from manyheads.runner.run import scratch
from manyheads.runner.run.hosts import read_hosts

RESTARTED = "it is restarted, the others continue"


def run_replicas(
    job: Job, environment: Mapping[str, str], *, is_warm: bool, stall_timeout: float, **options: Any
) -> None:
    """Start this machine's replicas, and restart those that die, until all have ended.

    ``options``: of ``ReplicaProcesses``. Raises as ``launchers.processes.supervise`` does.
    """

    def start(rank: int, meeting: Mapping[str, str]) -> BaseProcess:
        return start_rank(job, rank, {**environment, **meeting}, is_warm=is_warm)

    replicas = ReplicaProcesses(start, job, **options)
    shown = replace(job, heartbeat=replicas.shown, reports=job.reports or job.heartbeat.reports)
    supervise(replicas, shown, stall_timeout=stall_timeout)


def run_part(
    order: Mapping[str, Any], job: Job, environment: dict[str, str], *, folder: Path, note: Callable[[str], None]
) -> None:
    """Run one machine's replicas of a run on several machines, whose parent detects stalls.

    ``order``: the parent's; ``folder``: this machine's folder; ``note``: called with the cause of each restart. Raises
    as ``launchers.processes.supervise`` does.
    """
    variables = {**environment, **order["replicas"], HOST: order["address"], "MANYHEADS_PARENT": str(os.getpid())}
    run_replicas(job, variables, **order["limits"], stall_timeout=math.inf, scratch=folder, note=note)


def note_restart(job: Job, cause: str, what: str = RESTARTED) -> int:
    """Record a restart, or the loss of a machine, for result.json, and print it; returns how many there have been."""
    restarts = job.added["restarts"]
    restarts.append({"time": time.time(), "cause": cause})
    print(f"{cause}; {what}", flush=True)
    return len(restarts)


class TorchftOption(SpawnOption):
    """Declares that torchft is needed."""

    rules: ClassVar = {"hang_timeout": number(above=0), "heartbeat_timeout": number(above=0)}
    without_effect = ("warm", "hang_timeout", "heartbeat_timeout")
    restarts_ranks = True

    def note(self) -> str:
        return "for parallel=replicated"

    def unavailable(self) -> str | None:
        return missing()

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if self.nproc_per_node > 1 and not run.parallel.outlives_ranks:
            raise ConfigurationError.at(
                "launcher",
                "torchft",
                f" restarts a rank that died, which parallel={run.parallel.name} can't handle. Set "
                "launcher=spawn, or parallel=replicated.",
            )


class Torchft(Spawn):
    """Ranks as child processes of this process or of each machine's agent, which meet through the lighthouse."""

    def __init__(self, *, max_restarts: int, hang_timeout: float, heartbeat_timeout: float, **options: Any):
        section = {**options, **{key: options.pop(key, None) for key in KEYS}, "max_restarts": max_restarts}
        super().__init__(**options)
        self.max_restarts, self.hang_timeout = max_restarts, hang_timeout
        self.heartbeat_timeout = heartbeat_timeout
        self.settings = NodeSettings.of(section)
        self.machines = read_hosts(section["hosts"], section["hostfile"]) if self.settings else {}
        self.ranks *= self.settings.most if self.settings else 1

    def _begun(self, job: Job) -> Mapping[str, Any]:
        """Note that nothing was restarted so far; returns what limits restarts."""
        assert job.run is not None
        job.added["restarts"] = []
        width = job.run.parallel.section["ranks_per_replica"]
        limits = {"max_restarts": self.max_restarts, "hang_timeout": self.hang_timeout}
        return {**limits, "width": width, "is_warm": self.warm}

    def launch_on_machines(self, job: Job, run: Callable[..., None]) -> None:
        from manyheads.launchers.torchft.nodes import run_on_machines  # few runs need several machines

        assert self.settings is not None
        part = f"{run_part.__module__}.{run_part.__name__}"
        order = {"run_part": part, "limits": self._begun(job)}
        beat, stall = self.heartbeat_timeout, self.stall_timeout
        run_on_machines(self.settings, job, order, heartbeat_timeout=beat, stall_timeout=stall)

    def launch(self, job: Job) -> None:
        with scratch.folder() as folder:
            lighthouse = Lighthouse(job, heartbeat_timeout=self.heartbeat_timeout)
            run_replicas(
                job,
                {**job.environment, **lighthouse.variables(str(folder))},
                **self._begun(job),
                scratch=folder,
                note=partial(note_restart, job),
                lighthouse=lighthouse,
                stall_timeout=self.stall_timeout,
            )
