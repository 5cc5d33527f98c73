"""The ranks that a launcher has started, as the environment of one of them describes them."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from manyheads.launchers.foreign.conventions import (
    MEETING,
    PLAIN,
    SRUN,
    TORCHRUN,
    Convention,
    check_rest,
    convention_of,
    number,
    shown,
    wrong,
)
from manyheads.runner.errors import ConfigurationError

OURS = "MANYHEADS_PARENT"  # what this project starts inherits the variables of the rank that starts it
USUAL_PORT = 29500  # torch's own


@dataclass(frozen=True)
class World:
    """The ranks that a launcher has started, as one of them sees it.

    ``by``: the launcher; ``local_rank``, ``local_size``: on this machine. ``address``, ``port``: where ranks meet, None
    if all are on this machine; ``is_kept``: the launcher itself has a store there, which outlives the ranks. ``job``:
    tells this start from others on this machine; ``name``: that of a job which its queue may start again, else None.
    """

    by: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str | None = None
    port: int = USUAL_PORT
    is_kept: bool = False
    job: str = ""
    name: str | None = None

    @property
    def is_spread(self) -> bool:
        """Whether the ranks are on several machines."""
        return self.local_size < self.size


def world_of(environment: Mapping[str, str]) -> World | None:
    """The ranks that this environment describes, which may be a single one; None if it describes none.

    Raises ConfigurationError for one that contradicts itself, or from which something is missing.
    """
    if OURS in environment:
        return None
    convention = convention_of(environment)
    if convention is None:
        check_rest(environment)
        return None
    rank, size = number(environment, convention.rank), number(environment, convention.size, least=1)
    if rank >= size:
        raise wrong(environment, convention.rank, f"{convention.size}={size} ends at rank {size - 1}")
    if size == 1:
        return World(convention.name, rank, size, 0, 1, name=_single_name(environment))
    local_rank, local_size = _local(convention, environment, rank, size)
    address, port = _meeting(convention, environment, is_spread=local_size < size)
    return World(
        by=convention.name,
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        address=address,
        port=port,
        is_kept=convention is TORCHRUN and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        job=" ".join(filter(None, map(environment.get, convention.job))) or str(os.getppid()),
        name=_job_name(environment),
    )


def _local(convention: Convention, environment: Mapping[str, str], rank: int, size: int) -> tuple[int, int]:
    """This process's rank on its machine, and how many are there; in Kubernetes' variables each machine has one."""
    names = convention.local_rank, convention.local_size
    if convention is SRUN:
        node = number(environment, "SLURM_NODEID")
        counts = [
            int(count)
            for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get(names[1], ""))
            for _ in range(int(times or 1))
        ]
        return number(environment, names[0]), counts[node] if node < len(counts) else size
    if names[0] not in environment and names[1] not in environment and convention is PLAIN:
        return 0, 1
    if missing := [name for name in names if name not in environment]:
        raise ConfigurationError(
            f"{shown(environment, convention.rank, convention.size)} are set, but {' and '.join(missing)} not, which "
            f"tell how the ranks are spread over machines. Set {' and '.join(missing)}."
        )
    local_rank, local_size = number(environment, names[0]), number(environment, names[1], least=1)
    if local_rank >= local_size:
        raise wrong(environment, names[0], f"{names[1]}={local_size} ends at local rank {local_size - 1}")
    if local_size > size or local_rank > rank:
        name, other = (names[1], convention.size) if local_size > size else (names[0], convention.rank)
        raise wrong(environment, name, f"{other} is {environment[other]}")
    return local_rank, local_size


def _meeting(convention: Convention, environment: Mapping[str, str], *, is_spread: bool) -> tuple[str | None, int]:
    """Where the ranks meet; without an address, in a folder of this machine. Raises ConfigurationError."""
    needed = convention is TORCHRUN or convention is PLAIN
    if not (needed or is_spread):
        return None, USUAL_PORT
    if needed and (missing := [name for name in MEETING if not environment.get(name)]):
        raise ConfigurationError(
            f"{shown(environment, convention.rank, convention.size)} are set, but {' and '.join(missing)} not: the "
            "ranks have nowhere to meet. Set MASTER_ADDR and MASTER_PORT to rank 0's machine and a free port there."
        )
    if convention is SRUN and not environment.get(MEETING[0]):
        return _first_node(environment.get("SLURM_STEP_NODELIST", "")), 10000 + (
            31 * int(environment["SLURM_JOB_ID"]) + int(environment["SLURM_STEP_ID"])
        ) % 20000
    if not environment.get(MEETING[0]):
        raise ConfigurationError(
            f"{convention.name} has started ranks on several machines, which have nowhere to meet. Set MASTER_ADDR to "
            "the name of rank 0's machine, for all ranks."
        )
    port = number(environment, MEETING[1], least=1) if environment.get(MEETING[1]) else USUAL_PORT
    if port > 65535:
        raise wrong(environment, MEETING[1], "ports end at 65535")
    return environment[MEETING[0]], port


def _first_node(listed: str) -> str:
    """The first node's name in a list such as gpu[03-07,11],cpu1."""
    start, numbers, rest = re.match(r"([^,\[]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", listed).groups("")  # type: ignore[union-attr]
    return f"{start}{numbers}{rest}"


def _job_name(environment: Mapping[str, str]) -> str | None:
    """A name that a later start of this job has too, and no other job; None if there is none.

    Torchrun's own run id is ``none`` unless the user gives one, or a random UUID.
    """
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if job and step:
        return f"slurm-{job}.{step}"
    run = environment.get("TORCHELASTIC_RUN_ID", "none")
    if run == "none" or re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run):
        return None
    return f"torchrun-{re.sub(r'[^A-Za-z0-9_.-]', '_', run)}"


def _single_name(environment: Mapping[str, str]) -> str | None:
    """The same for the only rank: of torchrun's agent, if it restarts its rank; srun may have started a shell."""
    if "TORCHELASTIC_RUN_ID" not in environment or environment.get("TORCHELASTIC_MAX_RESTARTS", "0") == "0":
        return None
    agent = psutil.Process(os.getppid())
    return time.strftime(f"%Y-%m-%d/%H-%M-%S-{agent.pid}", time.localtime(agent.create_time()))
