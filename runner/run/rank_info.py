"""The rank of this process, read from the environment that its launcher has set."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

# Rank, local rank, world size: of PyTorch, whose names win, of Horovod, of Open MPI.
NAMES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
)
# What ranks on other machines need of the parent's environment; those on its own machine have it anyway.
EXPORTED = re.compile(
    r"(PATH|LD_LIBRARY_PATH|CUDA_\w+|NCCL_\w+|GLOO_\w+|HOROVOD_\w+|(PY)?TORCH_\w+|VIRTUAL_ENV|MANYHEADS_\w+"
    r"|(FI|UCX|OFI|IBV|RDMAV)_\w+)"  # of networks' libraries
)
# Further variables of a launcher, by the variable that shows its use. mpirun refuses to start within another mpirun.
_TOLD = {
    "HOROVOD_RANK": re.compile(r"HOROVOD_(LOCAL_|CROSS_|GLOO_RENDEZVOUS_|GLOO_IFACE|CONTROLLER|CPU_OP|HOSTNAME)"),
    "OMPI_COMM_WORLD_RANK": re.compile(r"(OMPI|ORTE|PMIX|PRTE)_(?!ALLOW_)"),
}


class RankInfo(NamedTuple):
    """One rank among all: ``local_rank`` counts the ranks on its machine."""

    rank: int
    local_rank: int
    world_size: int


def read_rank_info() -> RankInfo:
    """This process's rank. Raises KeyError if no launcher has set one."""
    for names in NAMES:
        if all(name in os.environ for name in names):
            return RankInfo(*(int(os.environ[name]) for name in names))
    raise KeyError(f"none of {', '.join(names[0] for names in NAMES)} is set: ranks must be started by a launcher")


def without_place(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a launcher whose ranks must not mistake an outer launcher's names for their own."""
    names = {name for group in NAMES for name in group}
    told = [pattern for sign, pattern in _TOLD.items() if sign in environment]
    return {
        name: value
        for name, value in environment.items()
        if name not in names and not any(pattern.match(name) for pattern in told)
    }
