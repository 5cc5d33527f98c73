"""What each launcher's variables say, in this process; nothing is started."""

from typing import Any

import pytest

from manyheads.launchers.foreign.conventions import CONVENTIONS, SRUN, TORCHRUN
from manyheads.launchers.foreign.world import World, world_of
from manyheads.runner import errors
from manyheads.runner.app import OF_RANKS
from manyheads.runner.errors import ConfigurationError

MASTER = {"MASTER_ADDR": "node1", "MASTER_PORT": "29501"}
PLAIN = {"RANK": "5", "WORLD_SIZE": "8"}
LOCAL = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
AGENT = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
NUMBERS = {"RANK": "1", "SIZE": "2", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
OMPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in NUMBERS.items()}
HOROVOD = {f"HOROVOD_{name}": value for name, value in NUMBERS.items()}
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}


@pytest.fixture(autouse=True)
def _warnings() -> None:
    errors.warn.cache_clear()


def shown(world: World | None) -> tuple[Any, ...] | None:
    return None if world is None else (world.by, world.rank, world.size, world.local_rank, world.local_size)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({**PLAIN, **LOCAL, **MASTER, **AGENT}, ("torchrun", 5, 8, 1, 4), id="torchrun"),
        pytest.param({**PLAIN, **LOCAL, **MASTER, **AGENT, **STEP}, ("torchrun", 5, 8, 1, 4), id="torchrun in srun"),
        pytest.param({**PLAIN, **MASTER}, ("RANK and WORLD_SIZE", 5, 8, 0, 1), id="Kubernetes"),
        pytest.param({**PLAIN, **LOCAL, **MASTER}, ("RANK and WORLD_SIZE", 5, 8, 1, 4), id="plain"),
        pytest.param(OMPI, ("mpirun", 1, 2, 1, 2), id="mpirun"),
        pytest.param({**OMPI, "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}, ("mpirun", 1, 2, 1, 2), id="mpirun in Slurm"),
        pytest.param(
            {key.replace("OMPI", "MV2"): value for key, value in OMPI.items()}, ("mpirun", 1, 2, 1, 2), id="MV2"
        ),
        pytest.param(
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            ("mpiexec", 1, 2, 1, 2),
            id="PMI",
        ),
        pytest.param(HOROVOD, ("horovodrun", 1, 2, 1, 2), id="horovodrun"),
        pytest.param({**STEP, **MASTER}, ("srun", 2, 3, 0, 1), id="srun"),
        pytest.param({"RANK": "0", "WORLD_SIZE": "1"}, ("RANK and WORLD_SIZE", 0, 1, 0, 1), id="one rank"),
        pytest.param(
            {**OMPI, "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
            ("mpirun", 0, 1, 0, 1),
            id="mpirun -np 1",
        ),
        pytest.param({**STEP, "SLURM_STEP_TASKS_PER_NODE": "1(x2),1", **MASTER}, ("srun", 2, 3, 0, 1), id="srun, x2"),
    ],
)
def test_a_rank_is_recognized(environment: dict[str, str], expected: tuple[Any, ...]) -> None:
    assert shown(world_of(environment)) == expected


@pytest.mark.parametrize(
    ("nodes", "first"), [("gpu[03-07,11],cpu1", "gpu03"), ("a,b", "a"), ("r[1-2]n0", "r1n0"), ("n1", "n1")]
)
def test_slurms_tasks_meet_on_the_first_node(nodes: str, first: str) -> None:
    world = world_of({**STEP, "SLURM_STEP_NODELIST": nodes})
    assert world is not None
    assert (world.address, world.port) == (first, 10217)


def test_each_convention_is_looked_for() -> None:
    assert {each.rank for each in (TORCHRUN, *CONVENTIONS)} <= OF_RANKS
    assert SRUN.job[1] in OF_RANKS


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, ""),
        ({"RANK": "0"}, "RANK=0 is ignored, since WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is ignored, since RANK is not set"),
        ({**STEP, "SLURM_STEP_ID": "4294967290"}, ""),  # salloc's interactive step
        ({key: value for key, value in STEP.items() if key != "SLURM_STEP_ID"}, ""),  # a batch script
        ({**PLAIN, **MASTER, "MANYHEADS_PARENT": "1"}, ""),  # started by a rank of ours
        ({"LOCAL_RANK": "1", "MASTER_ADDR": "node1"}, ""),
        ({"PET_NNODES": "1"}, ""),
    ],
)
def test_a_process_of_its_own(environment: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert world_of(environment) is None
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == bool(said)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "1"}, "WORLD_SIZE is not set. Set WORLD_SIZE, or unset RANK."),
        ({"RANK": "0", **MASTER}, "RANK=0 and MASTER_ADDR, MASTER_PORT name one of several"),
        ({"RANK": "0", "LOCAL_RANK": "0"}, "WORLD_SIZE is not set"),
        ({"HOROVOD_RANK": "1"}, "HOROVOD_SIZE is not set"),
        ({"OMPI_COMM_WORLD_RANK": "3"}, "OMPI_COMM_WORLD_SIZE is not set"),
        (PLAIN, "MASTER_ADDR and MASTER_PORT not: the ranks have nowhere to meet"),
        ({**PLAIN, "MASTER_ADDR": "node1"}, "but MASTER_PORT not"),
        ({**PLAIN, "MASTER_PORT": "29500"}, "but MASTER_ADDR not"),
        ({**PLAIN, **MASTER, "MASTER_PORT": "x"}, "MASTER_PORT=x: it must be a number"),
        ({**PLAIN, **MASTER, "MASTER_PORT": "70000"}, "MASTER_PORT=70000: ports end at 65535"),
        ({**PLAIN, **MASTER, "RANK": "8"}, "RANK=8: WORLD_SIZE=8 ends at rank 7"),
        ({**PLAIN, **MASTER, "RANK": "-1"}, "RANK=-1: it must be a number, 0 or more"),
        ({**PLAIN, **MASTER, "RANK": ""}, "RANK=: it must be a number"),
        ({**PLAIN, **MASTER, "WORLD_SIZE": "0"}, "WORLD_SIZE=0: it must be a number, 1 or more"),
        ({**PLAIN, **MASTER, "LOCAL_RANK": "1"}, "but LOCAL_WORLD_SIZE not"),
        ({**PLAIN, **MASTER, "LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, "LOCAL_WORLD_SIZE=4 ends at local rank 3"),
        ({**PLAIN, **MASTER, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE=9: WORLD_SIZE is 8"),
        ({**PLAIN, **MASTER, "LOCAL_RANK": "6", "LOCAL_WORLD_SIZE": "8"}, "LOCAL_RANK=6: RANK is 5"),
        ({**PLAIN, **MASTER, **OMPI}, "contradict RANK=5 and WORLD_SIZE=8. Unset those that are left over."),
        ({**HOROVOD, **OMPI, "HOROVOD_RANK": "0"}, "HOROVOD_RANK=0 and HOROVOD_SIZE=2 contradict OMPI_COMM_WORLD_RANK"),
        ({**OMPI, "OMPI_COMM_WORLD_SIZE": "8"}, "mpirun has started ranks on several machines"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "MPI_LOCALRANKID and MPI_LOCALNRANKS not"),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "1"}, "Type `torchrun` in place of `python`"),
    ],
)
def test_a_wrong_environment_is_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        world_of(environment)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (AGENT, None),
        ({**AGENT, "TORCHELASTIC_RUN_ID": "2f1e4fc0-81fd-4da6-9156-a00eac7f6d4e"}, None),  # of torchrun --standalone
        ({**AGENT, "TORCHELASTIC_RUN_ID": "my job/1"}, "torchrun-my_job_1"),
        ({**AGENT, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}, "slurm-7.2"),
    ],
)
def test_only_a_job_of_its_own_name_is_found_again(environment: dict[str, str], name: str | None) -> None:
    world = world_of({**PLAIN, **LOCAL, **MASTER, **environment})
    assert world is not None
    assert world.name == name
