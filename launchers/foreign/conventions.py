"""The environment variables by which launchers tell a process its rank: one row for each launcher.

Sources: https://docs.pytorch.org/docs/stable/elastic/run.html (also what ``python -m torch.distributed.launch`` and
``accelerate launch`` set), https://docs.open-mpi.org/en/v4.1.x/, https://slurm.schedmd.com/srun.html,
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError, warn

MEETING = ("MASTER_ADDR", "MASTER_PORT")
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


def convention_of(environment: Mapping[str, str]) -> Convention | None:
    """The launcher whose variables are complete, the innermost of several. Raises ConfigurationError."""
    if "TORCHELASTIC_RUN_ID" in environment and {"RANK", "WORLD_SIZE"} <= environment.keys():
        return TORCHRUN
    complete = [convention for convention in CONVENTIONS if {convention.rank, convention.size} <= environment.keys()]
    if complete:
        first, *others = complete
        for other in others:
            if _rank_and_size(environment, first) != _rank_and_size(environment, other):
                raise ConfigurationError(
                    f"{shown(environment, first.rank, first.size)} contradict "
                    f"{shown(environment, other.rank, other.size)}. Unset those that are left over."
                )
        return first
    is_step = int(environment.get("SLURM_STEP_ID", SPECIAL_STEP)) < SPECIAL_STEP
    return SRUN if is_step and {SRUN.rank, SRUN.size} <= environment.keys() else None


def _rank_and_size(environment: Mapping[str, str], convention: Convention) -> tuple[int, int]:
    """This process's rank, and the number of ranks. Raises ConfigurationError."""
    return number(environment, convention.rank), number(environment, convention.size)


def check_rest(environment: Mapping[str, str]) -> None:
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


def number(environment: Mapping[str, str], name: str, *, least: int = 0) -> int:
    """The value of a variable that is a number. Raises ConfigurationError if it is none, or smaller than ``least``."""
    text = environment.get(name, "")
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
        raise wrong(environment, name, f"it must be a number, {least} or more")
    return int(text)


def wrong(environment: Mapping[str, str], name: str, why: str) -> ConfigurationError:
    """The error for a variable that contradicts another one, or is not a number."""
    given = environment.get(name)
    what = f"{name} is not set" if given is None else f"{name}={given}"
    return ConfigurationError(f"{what}: {why}. Correct it, or unset it.", key=name, value=given)


def shown(environment: Mapping[str, str], *names: str) -> str:
    """These variables with their values, as in a shell."""
    return " and ".join(f"{name}={environment[name]}" for name in names)
