"""One of several machines' part of a run: its replicas."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from manyheads.launchers.base import Job
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.processes import supervise
from manyheads.launchers.spawn import start_rank
from manyheads.launchers.torchft.replicas import Replicas

HOST = "MANYHEADS_REPLICA_HOST"  # the variable that says which address of this machine the others reach


def start_replicas(
    order: Message, job: Job, environment: dict[str, str], *, own: Path, note: Callable[[str], None]
) -> None:
    """Start the replicas of one of several machines, and those that die again, until all have ended.

    ``own``: this machine's folder; ``note``: called with the cause of each restart. Raises as
    ``launchers.processes.supervise`` does.
    """
    variables = {**environment, **order["replicas"], HOST: order["address"], "MANYHEADS_PARENT": str(os.getpid())}
    replicas = Replicas(
        lambda rank, meeting: start_rank(job, rank, {**variables, **meeting}, is_warm=order["is_warm"]),
        job,
        width=order["width"],
        max_restarts=order["max_restarts"],
        hang_timeout=order["hang_timeout"],
        scratch=own,
        note=note,
    )
    supervise(replicas, replace(job, heartbeat=replicas.shown), stall_timeout=math.inf)
