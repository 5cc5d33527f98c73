"""What a run decides on real machines, as they describe themselves: devices, cores, threads and loaders."""

import os

import pytest

from manyheads.runner.machine import hardware
from manyheads.runner.machine.numa import near, parse_cpu_list
from tests.in_process import typed
from tests.machine.machines import MACHINES, pretend

CASES = [  # the driver's indices of the GPUs that ranks use; cores for each of these ranks, and those that none may use
    ("DGX A100", [*range(8)], 32, 0),
    ("DGX H100", [*range(8)], 28, 0),
    ("GB200 tray", [*range(4)], 36, 0),
    ("AWS p4d.24xlarge", [*range(8)], 12, 0),
    ("AWS g5.12xlarge", [*range(4)], 12, 0),
    ("workstation", [0], 32, 0),
    ("two sockets, GPUs at one", [0, 1], 8, 16),
    ("slices", [0], 32, 0),
    ("Slurm, two GPUs of a shared node", [2, 3], 32, 192),
    ("Slurm, GPUs by UUID", [2, 3], 32, 192),
    ("Kubernetes, a GPU and pinned cores", [0], 16, 0),
]


@pytest.fixture(params=CASES, ids=lambda case: case[0])
def decided(request, tmp_path, monkeypatch):
    """What is expected, on that machine."""
    name, gpus, each, idle = request.param
    pretend(MACHINES[name], tmp_path, monkeypatch)
    return MACHINES[name], gpus, each, idle


def test_ranks_use_the_gpus_that_they_were_given(decided):
    _, gpus, *_ = decided
    assert hardware.gpu_indices() == gpus


def test_cores_are_shared_out_near_the_gpus(decided):
    machine, gpus, _, idle = decided
    bound = near(gpus)
    usable = set().union(*bound) if any(bound) else machine.cores
    assert len(machine.cores - usable) == idle
    if any(bound):
        assert len({len(cores) for cores in bound}) == 1  # ranks have equally many


def test_threads_and_loaders_follow_the_cores(decided):
    _, gpus, each, _ = decided
    data = ("data=custom", "data._target_=tests.zoo.Noise", "data.num_workers=auto")
    run = typed("parallel=ddp", *data, f"data.batch_size={32 * len(gpus)}")
    assert (run.launcher.nproc_per_node, run.launcher.threads_per_rank) == (len(gpus), each)
    assert run.data.num_workers == min(run.data.most_workers, each - 1) > 0


def test_each_machine_is_decided_on():
    assert {name for name, *_ in CASES} == {*MACHINES}


def test_ranks_are_bound_to_these_cores(tmp_path, monkeypatch):
    machine = MACHINES["DGX A100"]
    pretend(machine, tmp_path, monkeypatch)
    bound = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: bound.append(cores))
    launcher = typed("parallel=ddp", "data.batch_size=64").launcher
    for rank in range(8):
        launcher.bind_rank(rank, on_gpus=True)
    assert set().union(*bound) == machine.cores
    own = [parse_cpu_list(machine.nodes[node]) for node in machine.near]
    assert all(near_gpu <= cores for near_gpu, cores in zip(own, bound, strict=True))
