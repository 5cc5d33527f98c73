"""Machines as their kernel, driver and scheduler describe them, for tests of what is decided from that.

From the makers' documents: DGX A100 (https://docs.nvidia.com/dgx/dgxa100-user-guide/; its EPYCs in mode NPS4), DGX
H100, GB200 compute trays, instances of AWS, and MIG (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/).
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyheads.runner.machine import hardware, numa
from manyheads.runner.machine.gpus import Board, CUDADevice
from manyheads.runner.machine.numa import parse_cpu_list


@dataclass(frozen=True)
class MachineFacts:
    """``nodes``: the cores of each NUMA node, as the kernel lists them; ``sockets``: the socket of each.

    ``boards``: the GPUs that the driver lists; ``near``: the node to whose cores each of them is near. ``allowed``:
    the cores that a process may use, as the kernel lists them, or all; ``variables``: that a scheduler sets.
    """

    nodes: Sequence[str]
    sockets: Sequence[int]
    boards: Sequence[Board] = ()
    near: Sequence[int] = ()
    allowed: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def cores(self) -> set[int]:
        return parse_cpu_list(self.allowed or ",".join(filter(None, self.nodes)))


def boards(name: str, count: int) -> list[Board]:
    return [Board(name, f"GPU-{number:08x}-5a1b-4c2d-9e3f-000000000000") for number in range(count)]


A100 = "NVIDIA A100-SXM4-80GB"
SLICES = tuple(
    CUDADevice(f"{A100} MIG 1g.10gb", f"MIG-{number:08x}-0000-5000-8000-000000000000") for number in range(7)
)
UUIDS = ",".join(board.uuid for board in boards(A100, 8)[2:4])
DGX_A100 = MachineFacts(
    [f"{16 * node}-{16 * node + 15},{128 + 16 * node}-{143 + 16 * node}" for node in range(8)],
    [0, 0, 0, 0, 1, 1, 1, 1],
    boards(A100, 8),
    [3, 3, 1, 1, 7, 7, 5, 5],
)
DGX_H100 = MachineFacts(
    ["0-55,112-167", "56-111,168-223"], [0, 1], boards("NVIDIA H100 80GB HBM3", 8), [0, 0, 0, 0, 1, 1, 1, 1]
)
IN_SLURM = {"SLURM_JOB_ID": "81", "SLURM_PROCID": "0", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "2,3"}
IN_KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "NVIDIA_VISIBLE_DEVICES": boards(A100, 8)[4].uuid}
MACHINES: Mapping[str, MachineFacts] = {
    "DGX A100": DGX_A100,
    "DGX H100": DGX_H100,
    # The memory of each GPU is a node without cores.
    "GB200 tray": MachineFacts(["0-71", "72-143", "", ""], [0, 1, 0, 1], boards("NVIDIA GB200", 4), [0, 0, 1, 1]),
    "AWS p4d.24xlarge": MachineFacts(
        ["0-23,48-71", "24-47,72-95"], [0, 1], boards("NVIDIA A100-SXM4-40GB", 8), [0, 0, 0, 0, 1, 1, 1, 1]
    ),
    "AWS g5.12xlarge": MachineFacts(["0-47"], [0], boards("NVIDIA A10G", 4), [0, 0, 0, 0]),
    "workstation": MachineFacts(["0-31"], [0], boards("NVIDIA RTX 6000 Ada Generation", 1), [0]),
    "two sockets, GPUs at one": MachineFacts(["0-15", "16-31"], [0, 1], boards("NVIDIA L40S", 2), [0, 0]),
    "slices": MachineFacts(
        ["0-31"], [0], [Board(A100, "GPU-0", SLICES)], [0], variables={"CUDA_VISIBLE_DEVICES": SLICES[2].uuid}
    ),
    "Slurm, two GPUs of a shared node": MachineFacts(
        DGX_A100.nodes,
        DGX_A100.sockets,
        DGX_A100.boards,
        DGX_A100.near,
        variables={**IN_SLURM, "CUDA_VISIBLE_DEVICES": "2,3"},
    ),
    "Slurm, GPUs by UUID": MachineFacts(
        DGX_A100.nodes,
        DGX_A100.sockets,
        DGX_A100.boards,
        DGX_A100.near,
        variables={**IN_SLURM, "CUDA_VISIBLE_DEVICES": UUIDS},
    ),
    # The driver of a container lists only its GPUs; its cores are those that the kubelet has pinned.
    "Kubernetes, a GPU and pinned cores": MachineFacts(
        DGX_H100.nodes, DGX_H100.sockets, DGX_H100.boards[4:5], [1], allowed="56-71", variables=IN_KUBERNETES
    ),
}


def pretend(machine: MachineFacts, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let this process find that machine. ``folder``: takes the kernel's files."""
    for number, (cores, socket) in enumerate(zip(machine.nodes, machine.sockets, strict=True)):
        (folder / f"node{number}").mkdir()
        (folder / f"node{number}" / "cpulist").write_text(f"{cores}\n")
        for core in parse_cpu_list(cores):
            topology = folder / f"cpu{core}" / "topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text(f"{socket}\n")
    near = [sum(1 << core for core in parse_cpu_list(machine.nodes[node])) for node in machine.near]
    driver = SimpleNamespace(
        nvmlDeviceGetCount=lambda: len(near),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCpuAffinity=lambda gpu, words: [near[gpu] >> 64 * word & (1 << 64) - 1 for word in range(words)],
    )
    for name in ("CUDA_VISIBLE_DEVICES", *machine.variables):
        patch.delenv(name, raising=False)
    for name, value in machine.variables.items():
        patch.setenv(name, value)
    patch.setattr(numa, "NODES", folder)
    patch.setattr(numa, "CORES", folder)
    patch.setattr(numa, "session", lambda: nullcontext(driver))
    patch.setattr(os, "sched_getaffinity", lambda _: machine.cores)
    patch.setattr(hardware, "CPU_LIMIT", folder / "cpu.max")
    patch.setattr(os, "cpu_count", lambda: len(parse_cpu_list(",".join(filter(None, machine.nodes)))))
    patch.setattr(hardware, "_driver", lambda: ("580.95", list(machine.boards)))
    patch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
