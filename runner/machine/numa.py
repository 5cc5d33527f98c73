"""The cores near a rank: those of its GPU's NUMA node or, on CPUs, of the node that it is assigned to.

Memory and devices of another socket are further away. Sources: https://docs.kernel.org/admin-guide/mm/numaperf.html,
nvmlDeviceGetCpuAffinity in https://docs.nvidia.com/deploy/nvml-api/.
"""

import os
from pathlib import Path

from manyheads.runner.machine.gpus import asked, session

NODES = Path("/sys/devices/system/node")
_BITS = 64  # of a word in NVML's masks


def nodes() -> list[set[int]]:
    """The cores of each NUMA node of this machine; nodes without cores are skipped."""
    try:
        texts = [
            path.read_text() for path in sorted(NODES.glob("node[0-9]*/cpulist"), key=lambda p: int(p.parent.name[4:]))
        ]
    except (OSError, ValueError):
        return []
    return [cores for text in texts if (cores := parse_cpu_list(text))]


def near(*, local_rank: int, ranks: int, gpu: int | None) -> set[int]:
    """The cores to bind a rank to, of those that it may use.

    ``ranks``: their number on this machine; ``gpu``: the driver's index of the rank's GPU, None on CPUs. Empty if the
    rank should not be bound: with one NUMA node only, or if the ranks cannot be divided among the nodes.
    """
    parts, allowed = nodes(), os.sched_getaffinity(0)
    if len(parts) < 2:
        return set()
    if gpu is not None:
        return near_gpu(gpu) & allowed
    if ranks % len(parts):
        return set()
    return parts[local_rank * len(parts) // ranks] & allowed


def near_gpu(index: int) -> set[int]:
    """The cores that are near a GPU; empty if the driver does not report them."""
    words = -(-(os.cpu_count() or 1) // _BITS)
    with session() as nvml:
        handle = asked(nvml.nvmlDeviceGetHandleByIndex, index) if nvml else None
        masks = asked(nvml.nvmlDeviceGetCpuAffinity, handle, words) if handle is not None else None
    return {word * _BITS + bit for word, mask in enumerate(masks or ()) for bit in range(_BITS) if mask >> bit & 1}


def parse_cpu_list(text: str) -> set[int]:
    """The numbers of a kernel's list such as "0-3,8"."""
    spans = (part.partition("-") for part in text.strip().split(",") if part)
    return {core for first, _, last in spans for core in range(int(first), int(last or first) + 1)}
