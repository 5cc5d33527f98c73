"""This machine's hardware, found without importing torch."""

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation, other_gpus
from manyheads.runner.machine.gpus import Board, CUDADevice, memory, read

NO_GPU = (
    "this machine has no NVIDIA GPU that the installed torch can use "
    f"(a driver and a CUDA build of torch are needed; see `{invocation.command('doctor')}`)"
)


class _Machine(NamedTuple):
    gpus: int
    cores: int


_elsewhere: ContextVar[_Machine | None] = ContextVar("elsewhere", default=None)


@contextmanager
def elsewhere(*, gpus: int, cores: int) -> Iterator[None]:
    """A context in which this module describes the machine of a run, with these numbers of GPUs and cores."""
    token = _elsewhere.set(_Machine(gpus, cores))
    try:
        yield
    finally:
        _elsewhere.reset(token)


def is_here() -> bool:
    """Whether this module describes this machine."""
    return _elsewhere.get() is None


def torch_cuda_version() -> str | None:
    """The CUDA version that the installed torch was built for, or None."""
    return torch_build("cuda")


@cache
def torch_build(kind: str) -> str | None:
    """The version of "cuda", "hip" (ROCm) or "xpu" that the installed torch was built for, or None; from its files."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text()
    match = re.search(rf"^{kind}: [^=]*= '([^']+)'", text, re.MULTILINE)
    return match.group(1) if match else None


@cache
def _driver() -> tuple[str, list[Board]]:
    return read()


def driver_version() -> str:
    """The NVIDIA driver's version, or "" without one."""
    return _driver()[0]


def gpu_names() -> list[str]:
    """Names of the GPUs that a rank would see, in its order."""
    return [part.name for _, part in _visible()]


def gpu_indices() -> list[int]:
    """The driver's indices of the GPUs that a rank would see, in the order of CUDA_VISIBLE_DEVICES."""
    return [index for index, _ in _visible()]


def gpu_index(number: int) -> int | None:
    """The driver's index of the GPU that a rank sees under this number; None if there is none."""
    indices = gpu_indices()
    return indices[number] if number < len(indices) else None


def ranks_per_gpu(*, on_gpus: bool = True) -> int:
    """The ranks on each GPU: one, unless MANYHEADS_RANKS_PER_GPU tests several on one. Raises ConfigurationError."""
    value = os.environ.get("MANYHEADS_RANKS_PER_GPU", "1")
    if not value.isdecimal() or int(value) < 1 or not (on_gpus or value == "1"):
        allowed = "a whole number of 1 or more" if on_gpus else "no value, since the run is on CPUs"
        raise ConfigurationError.at("MANYHEADS_RANKS_PER_GPU", value, f" is not allowed. Allowed: {allowed}.")
    return int(value)


def gpu_ids() -> list[str]:
    """Identifiers for CUDA_VISIBLE_DEVICES that do not depend on CUDA's order."""
    return [part.uuid for _, part in _visible()]


def gpu_memory() -> int | None:
    """Memory of the smallest GPU that a rank would see, in bytes; None without GPUs."""
    return memory(gpu_ids()) if gpu_ids() else None


def gpus_are_hidden() -> bool:
    """Whether the user hides all GPUs from CUDA, as an empty CUDA_VISIBLE_DEVICES does, or -1."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def unused_gpus() -> str | None:
    """Why a machine with a GPU has none for a rank; None if it has one for it, or none at all."""
    version, boards = _driver()
    if _visible():
        return None
    if not version:
        return other_gpus.unused(hip=torch_build("hip"), xpu=torch_build("xpu"))
    if not boards:
        return f"NVIDIA's driver {version} finds no GPU that responds; see nvidia-smi"
    if torch_cuda_version() is None:
        why = "the installed torch is a CPU build; pip install torch brings the CUDA one"
    elif gpus_are_hidden():
        why = f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} hides {'them' if boards[1:] else 'it'}"
    elif (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        why = f"CUDA_VISIBLE_DEVICES={visible} names none that CUDA accepts; nvidia-smi -L lists them"
    else:
        why = "it is in MIG mode but has no instance; see nvidia-smi mig"
    return (
        f"NVIDIA's driver {version} has {boards[0].name}{f' and {len(boards) - 1} more' * (len(boards) > 1)}, but {why}"
    )


def _visible() -> list[tuple[int, CUDADevice]]:
    """The devices that CUDA, or ROCm, would count, each with its board's number; none for a CPU build of torch.

    Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/, "Device Enumeration".
    """
    if (other := _elsewhere.get()) is not None:
        return [(index, CUDADevice(name="GPU", uuid=str(index))) for index in range(other.gpus)]
    if torch_cuda_version() is None:
        gpus = other_gpus.visible_to_rocm() if torch_build("hip") else []
        return [(index, CUDADevice(name, str(index))) for index, name in gpus]
    boards = _driver()[1]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        devices = [(index, board.devices[0]) for index, board in enumerate(boards) if board.devices]
    else:
        devices = []
        for entry in filter(None, (part.strip() for part in visible.split(","))):
            device = _named(entry, boards)
            if device is None:
                break  # CUDA itself ignores everything from the first invalid entry on
            if device in devices:
                return []  # and it finds no devices if one is named twice
            devices.append(device)
    slices = [(index, part) for index, part in devices if boards[index].slices is not None]
    return slices[:1] or devices  # of slices CUDA counts only the first one, and no complete GPU beside it


def _named(entry: str, boards: list[Board]) -> tuple[int, CUDADevice] | None:
    """The device that an entry of CUDA_VISIBLE_DEVICES names; of a GPU in MIG mode, its first slice."""
    for index, board in enumerate(boards):
        if board.devices and (entry == str(index) or board.uuid.startswith(entry)):
            return index, board.devices[0]
        for part in board.slices or ():
            if part.uuid.startswith(entry):
                return index, part
    return None


CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def bound_cores() -> list[int]:
    """The numbers of the cores that this process is bound to; where no process can be bound, of all."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def cpu_cores() -> int:
    """Cores that this process may use: those that it is bound to, or complete ones in its container's quota."""
    if (other := _elsewhere.get()) is not None:
        return other.cores
    cores = len(bound_cores())
    with suppress(OSError, ValueError):  # no container, or "max"
        quota, period = map(int, CPU_LIMIT.read_text().split())
        return max(1, min(cores, quota // period))
    return cores


def cores_for_each(ranks: int) -> int:
    """Number of this machine's cores for each of its ranks, at least 1."""
    return max(1, cpu_cores() // ranks)


MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """This machine's memory in bytes, or its container's limit."""
    import psutil  # a command that starts no run starts sooner without it

    total = psutil.virtual_memory().total
    for path in MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # no container, or "max"
            total = min(total, int(Path(path).read_text()))
    return total


def cpu_model() -> str:
    """The processor's name, or "unknown"."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1) if match else "unknown"


CPUINFO = Path("/proc/cpuinfo")
# Makers' names of the instructions for products of bfloat16, by the kernel's CPU flag.
BFLOAT16 = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512-BF16", "bf16": "bf16"}
EMULATED = "this processor has no bfloat16 instructions (AVX-512-BF16, AMX), and emulates them"


def bfloat16() -> str | None:
    """The instructions for products of bfloat16; None if there are none, so that they are emulated, which is slow."""
    try:
        text = CPUINFO.read_text()
    except OSError:
        return None
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    return next((name for flag, name in BFLOAT16.items() if flag in flags), None)
