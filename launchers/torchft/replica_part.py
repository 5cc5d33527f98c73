"""One machine's replicas: all of a run, or its part of a run on several machines."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from manyheads.launchers.job import Job
from manyheads.launchers.processes import supervise
from manyheads.launchers.spawn import start_rank
from manyheads.launchers.torchft.replica_processes import ReplicaProcesses
from manyheads.runner.parallel.replicated import HOST

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
