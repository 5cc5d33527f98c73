"""The cores near a rank: those of its GPU's NUMA node or, on CPUs, of the node that it is assigned to.

Memory and devices of another socket are further away. Sources: https://docs.kernel.org/admin-guide/mm/numaperf.html,
nvmlDeviceGetCpuAffinity in https://docs.nvidia.com/deploy/nvml-api/.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from manyheads.runner.machine.gpus import asked, session

NODES = Path("/sys/devices/system/node")
MEMORY = Path("/proc/self/numa_maps")
_BITS = 64  # of a word in NVML's masks
_PAGES = re.compile(r" N(\d+)=(\d+)")
_PAGE = re.compile(r" kernelpagesize_kB=(\d+)")


def nodes() -> list[set[int]]:
    """The cores of each NUMA node of this machine; nodes without cores are skipped."""
    return [*_numbered().values()]


def _numbered() -> dict[int, set[int]]:
    try:
        paths = sorted(NODES.glob("node[0-9]*/cpulist"), key=_number)
        return {_number(path): cores for path in paths if (cores := parse_cpu_list(path.read_text()))}
    except (OSError, ValueError):
        return {}


def _number(path: Path) -> int:
    return int(path.parent.name[4:])


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


def is_far_from(gpu: int) -> bool:
    """Whether this process may use none of the cores near a GPU; False if those are unknown."""
    cores = near_gpu(gpu)
    return bool(cores) and not cores & os.sched_getaffinity(0)


def far_memory() -> float:
    """The fraction of this process's memory that is on other NUMA nodes than its cores; 0 if it may use all nodes'.

    Source: numa_maps in https://man7.org/linux/man-pages/man7/numa.7.html.
    """
    nodes = _numbered()
    if len(nodes) < 2:
        return 0.0
    allowed = os.sched_getaffinity(0)
    local_nodes = {number for number, cores in nodes.items() if cores & allowed}
    if len(local_nodes) == len(nodes):
        return 0.0
    held = {True: 0, False: 0}
    with suppress(OSError):
        for line in MEMORY.read_text().splitlines():
            size = int(match[1]) if (match := _PAGE.search(line)) else 4
            for number, pages in _PAGES.findall(line):
                held[int(number) in local_nodes] += size * int(pages)
    return held[False] / max(1, sum(held.values()))


def parse_cpu_list(text: str) -> set[int]:
    """The numbers of a kernel's list such as "0-3,8"."""
    spans = (part.partition("-") for part in text.strip().split(",") if part)
    return {core for first, _, last in spans for core in range(int(first), int(last or first) + 1)}
