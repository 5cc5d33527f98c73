"""The environment variables by which launchers tell a process its rank: one row for each launcher.

Sources: https://docs.pytorch.org/docs/stable/elastic/run.html (also what ``python -m torch.distributed.launch`` and
``accelerate launch`` set), https://docs.open-mpi.org/en/v4.1.x/, https://slurm.schedmd.com/srun.html,
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import psutil

from manyheads.runner.errors import ConfigurationError, warn

OURS = "MANYHEADS_PARENT"  # what this project starts inherits the variables of the rank that starts it
MEETING = ("MASTER_ADDR", "MASTER_PORT")
USUAL_PORT = 29500  # torch's own
SPECIAL_STEP = 0xFFFFFFF0  # Slurm's numbers of batch, interactive and external steps, which start no ranks


class Convention(NamedTuple):
    """One launcher's variables. ``name``: as it is typed; ``job``: those that together name this job on its machine.

    ``local_rank``, ``local_size``: among the ranks on the same machine.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    job: tuple[str, ...] = ()


TORCHRUN = Convention("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # with TORCHELASTIC_RUN_ID
PLAIN = TORCHRUN._replace(name="RANK and WORLD_SIZE")  # such as Kubernetes sets them
OPEN_MPI = Convention(
    *("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    ("PMIX_NAMESPACE",),
)
CONVENTIONS = (
    Convention(
        *("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ),
    OPEN_MPI,
    Convention(
        *("mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    Convention("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    PLAIN,
)
SRUN = Convention(
    *("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)


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
    convention = _convention(environment)
    if convention is None:
        _check_rest(environment)
        return None
    rank, size = _number(environment, convention.rank), _number(environment, convention.size, least=1)
    if rank >= size:
        raise _wrong(environment, convention.rank, f"{convention.size}={size} ends at rank {size - 1}")
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


def _convention(environment: Mapping[str, str]) -> Convention | None:
    """The launcher whose variables are complete, the innermost of several. Raises ConfigurationError."""
    if "TORCHELASTIC_RUN_ID" in environment and {"RANK", "WORLD_SIZE"} <= environment.keys():
        return TORCHRUN
    complete = [convention for convention in CONVENTIONS if {convention.rank, convention.size} <= environment.keys()]
    if complete:
        first, *others = complete
        for other in others:
            if _rank_and_size(environment, first) != _rank_and_size(environment, other):
                raise ConfigurationError(
                    f"{_shown(environment, first.rank, first.size)} contradict "
                    f"{_shown(environment, other.rank, other.size)}. Unset those that are left over."
                )
        return first
    is_step = int(environment.get("SLURM_STEP_ID", SPECIAL_STEP)) < SPECIAL_STEP
    return SRUN if is_step and {SRUN.rank, SRUN.size} <= environment.keys() else None


def _rank_and_size(environment: Mapping[str, str], convention: Convention) -> tuple[int, int]:
    """This process's rank, and the number of ranks. Raises ConfigurationError."""
    return _number(environment, convention.rank), _number(environment, convention.size)


def _check_rest(environment: Mapping[str, str]) -> None:
    """Say what is ignored, or refuse what names a rank without saying among how many."""
    for convention in CONVENTIONS:
        rank, size = convention.rank, convention.size
        if rank in environment and size not in environment:
            partners = [name for name in (*convention[3:5], *MEETING) if name in environment]
            if environment[rank] != "0" or partners:
                also = f" and {', '.join(partners)}" if partners else ""
                how = f"{also} name one of several processes, but {size} is not set. Set {size}, or unset {rank}."
                raise ConfigurationError.at(rank, environment[rank], how)
            warn(f"{rank}=0 is ignored, since {size} is not set: this is a run of its own")
        elif size in environment and rank not in environment and environment[size] != "1":
            warn(f"{size}={environment[size]} is ignored, since {rank} is not set")
    if (nodes := environment.get("PET_NNODES", "1")) not in ("1", "1:1"):
        raise ConfigurationError(
            f"PET_NNODES={nodes}: this is one of several machines, on which torchrun must start the ranks. Type "
            "`torchrun` in place of `python`: it reads the PET_ variables."
        )


def _local(convention: Convention, environment: Mapping[str, str], rank: int, size: int) -> tuple[int, int]:
    """This process's rank on its machine, and how many are there; in Kubernetes' variables each machine has one."""
    names = convention.local_rank, convention.local_size
    if convention is SRUN:
        node = _number(environment, "SLURM_NODEID")
        counts = [
            int(count)
            for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get(names[1], ""))
            for _ in range(int(times or 1))
        ]
        return _number(environment, names[0]), counts[node] if node < len(counts) else size
    if names[0] not in environment and names[1] not in environment and convention is PLAIN:
        return 0, 1
    if missing := [name for name in names if name not in environment]:
        raise ConfigurationError(
            f"{_shown(environment, convention.rank, convention.size)} are set, but {' and '.join(missing)} not, which "
            f"tell how the ranks are spread over machines. Set {' and '.join(missing)}."
        )
    local_rank, local_size = _number(environment, names[0]), _number(environment, names[1], least=1)
    if local_rank >= local_size:
        raise _wrong(environment, names[0], f"{names[1]}={local_size} ends at local rank {local_size - 1}")
    if local_size > size or local_rank > rank:
        name, other = (names[1], convention.size) if local_size > size else (names[0], convention.rank)
        raise _wrong(environment, name, f"{other} is {environment[other]}")
    return local_rank, local_size


def _meeting(convention: Convention, environment: Mapping[str, str], *, is_spread: bool) -> tuple[str | None, int]:
    """Where the ranks meet; without an address, in a folder of this machine. Raises ConfigurationError."""
    needed = convention is TORCHRUN or convention is PLAIN
    if not (needed or is_spread):
        return None, USUAL_PORT
    if needed and (missing := [name for name in MEETING if not environment.get(name)]):
        raise ConfigurationError(
            f"{_shown(environment, convention.rank, convention.size)} are set, but {' and '.join(missing)} not: the "
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
    port = _number(environment, MEETING[1], least=1) if environment.get(MEETING[1]) else USUAL_PORT
    if port > 65535:
        raise _wrong(environment, MEETING[1], "ports end at 65535")
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


def _number(environment: Mapping[str, str], name: str, *, least: int = 0) -> int:
    text = environment.get(name, "")
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
        raise _wrong(environment, name, f"it must be a number, {least} or more")
    return int(text)


def _wrong(environment: Mapping[str, str], name: str, why: str) -> ConfigurationError:
    given = environment.get(name)
    what = f"{name} is not set" if given is None else f"{name}={given}"
    return ConfigurationError(f"{what}: {why}. Correct it, or unset it.", key=name, value=given)


def _shown(environment: Mapping[str, str], *names: str) -> str:
    return " and ".join(f"{name}={environment[name]}" for name in names)
