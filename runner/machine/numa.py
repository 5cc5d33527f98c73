"""The cores near a rank: those of its GPU's NUMA node, or on CPUs of the node that it is assigned to.

Memory and devices of another socket are further away. Sources: https://docs.kernel.org/admin-guide/mm/numaperf.html,
nvmlDeviceGetCpuAffinity in https://docs.nvidia.com/deploy/nvml-api/.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from manyheads.runner.machine.gpus import asked, session

NODES, CORES = Path("/sys/devices/system/node"), Path("/sys/devices/system/cpu")
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


def near(gpus: Sequence[int | None]) -> list[set[int]]:
    """The cores to bind each rank of this machine to, of those that this process may use, in their order.

    ``gpus``: the driver's index of each rank's GPU, None on CPUs. Empty for a rank that should not be bound: with one
    NUMA node only, if the driver does not report cores, or if the ranks cannot be divided among the nodes.
    """
    parts, allowed = nodes(), os.sched_getaffinity(0)
    if len(parts) < 2:
        return [set() for _ in gpus]
    if any(gpu is not None for gpu in gpus):
        shares = _shares(parts, allowed)
        return [set() if gpu is None else shares.get(gpu, set()) for gpu in gpus]
    if len(gpus) % len(parts):
        return [set() for _ in gpus]
    return [parts[rank * len(parts) // len(gpus)] & allowed for rank in range(len(gpus))]


def cores_for_each(gpus: Sequence[int | None]) -> int | None:
    """The fewest cores that a rank has if each is bound to those near it; None if a rank is not bound."""
    bound = near(gpus)
    if not all(bound):
        return None
    return max(1, min(len(cores) // sum(bool(cores & other) for other in bound) for cores in bound))


def _shares(parts: Sequence[set[int]], allowed: set[int]) -> dict[int, set[int]]:
    """The cores of each GPU of this machine: those near it, and of its socket those that are near no GPU.

    A socket may have several NUMA nodes, some of them without a GPU, as on AMD's processors in mode NPS4: their cores
    go to the GPUs' nodes in turn. A socket without any GPU is left alone.
    """
    near_each = {gpu: frozenset(near_gpu(gpu) & allowed) for gpu in range(_count())}
    grown = {cores: {*cores} for cores in sorted(filter(None, {*near_each.values()}), key=min)}
    for part in parts:
        free = (part & allowed).difference(*grown)
        in_socket = [cores for cores in grown if free and _socket(min(cores)) == _socket(min(free))]
        if in_socket:
            grown[min(in_socket, key=lambda cores: len(grown[cores]))] |= free
    return {gpu: grown.get(cores, set()) for gpu, cores in near_each.items()}


def _count() -> int:
    with session() as nvml:
        return (asked(nvml.nvmlDeviceGetCount) or 0) if nvml else 0


def _socket(core: int) -> str:
    """The socket of a core; empty, as for all others, if the kernel does not report it."""
    try:
        return (CORES / f"cpu{core}" / "topology" / "physical_package_id").read_text().strip()
    except OSError:
        return ""


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
