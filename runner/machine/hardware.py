"""What this machine offers, found without importing torch."""

import importlib.util
import os
import re
from functools import cache
from pathlib import Path

from manyheads.runner.run import called

NO_GPU = (
    "this machine has no NVIDIA GPU that the installed torch can use "
    f"(a driver and a CUDA build of torch are needed; see `{called.command('doctor')}`)"
)


@cache
def torch_cuda_version() -> str | None:
    """The CUDA version that the installed torch was built for, or None; read from its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text()
    found = re.search(r"^cuda: [^=]*= '([^']+)'", text, re.MULTILINE)
    return found.group(1) if found else None


@cache
def _driver() -> tuple[str, list[tuple[str, str]]]:
    """The NVIDIA driver's version and (name, uuid) of its GPUs; no driver: ("", [])."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "", []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = [(_text(pynvml.nvmlDeviceGetName(h)), _text(pynvml.nvmlDeviceGetUUID(h))) for h in handles]
        return _text(pynvml.nvmlSystemGetDriverVersion()), gpus
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def driver_version() -> str:
    """The NVIDIA driver's version, or "" where there is none."""
    return _driver()[0]


def gpu_names() -> list[str]:
    """Names of the GPUs that a rank would see, in its order."""
    gpus = _driver()[1] if torch_cuda_version() else []
    return [gpus[index][0] for index in gpu_indices()]


def gpu_indices() -> list[int]:
    """The driver's numbers of the GPUs that a rank would see: CUDA_VISIBLE_DEVICES is heeded, in its order."""
    if torch_cuda_version() is None:
        return []
    gpus = _driver()[1]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(range(len(gpus)))
    indices = []
    for entry in filter(None, (part.strip() for part in visible.split(","))):
        if entry.isdigit() and int(entry) < len(gpus):
            indices.append(int(entry))
        elif match := [index for index, (_, uuid) in enumerate(gpus) if uuid.startswith(entry)]:
            indices.append(match[0])
        else:
            break  # CUDA itself ignores everything from the first invalid entry on
    return indices


def cpu_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_for_each(ranks: int) -> int:
    """The share of this machine's cores that each of so many ranks gets."""
    return max(1, cpu_cores() // ranks)


def cpu_model() -> str:
    """The processor's name, or "unknown"."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else "unknown"
