"""The Slurm allocation that this process is in: of our own batch script, or of a job that the user started."""

import os
import re
from dataclasses import dataclass

from manyheads.launchers.slurm import slurm_commands
from manyheads.runner.machine import addresses

OURS = "MANYHEADS_SLURM_JOB"  # set by our batch script: Slurm may run it again


@dataclass(frozen=True)
class Allocation:
    """A Slurm job's nodes, ``listed`` as Slurm writes them. ``is_ours``: our script's job, which may be requeued."""

    job: str
    count: int
    listed: str
    restarts: int
    is_ours: bool

    @classmethod
    def here(cls) -> "Allocation | None":
        """This process's allocation; None outside of one."""
        job = os.environ.get("SLURM_JOB_ID")
        listed = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
        count = os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_JOB_NUM_NODES")
        if not job or not listed or not count:
            return None
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        return cls(job, int(count), listed, restarts, OURS in os.environ)

    def nodes(self) -> dict[str, str]:
        """The nodes' addresses by name, in Slurm's order."""
        names = slurm_commands.host_names(self.listed)
        node_addresses = slurm_commands.addresses(names)
        return {name: addresses.resolved(f"Slurm's node {name}", node_addresses.get(name, name)) for name in names}

    def offered(self) -> tuple[int | None, int]:
        """CPUs (None if Slurm does not say) and GPUs of the job on each node; the minimum over its nodes."""
        listed = re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return min(map(int, listed), default=None), slurm_commands.gpus_per_node(self.job)


def is_on_node() -> bool:
    """Whether this process runs on one of the allocation's nodes; a command started by salloc may run elsewhere."""
    return "SLURMD_NODENAME" in os.environ
