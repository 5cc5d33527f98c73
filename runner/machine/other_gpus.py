"""GPUs of other makers than NVIDIA: AMD's, which torch's ROCm build calls cuda, and those that no strategy uses.

Sources: https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html, and kfd_topology.c of the Linux kernel.
"""

import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_PROPERTY = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)
# Of a ROCm build. HIP takes the first one that is set, and ids of jobs are passed in the second one.
HIP, CUDA = "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


class AMDDevice(NamedTuple):
    """``name``: its architecture, such as AMD gfx942; ``is_integrated``: whether it is a part of the processor."""

    name: str
    is_integrated: bool


def amd_gpus() -> list[AMDDevice]:
    """AMD's GPUs, in the driver's order, of those that ROCR_VISIBLE_DEVICES leaves."""
    gpus = []
    for node in sorted(KFD.glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            facts = {name: int(value) for name, value in _PROPERTY.findall((node / "properties").read_text())}
            if facts.get("simd_count"):
                gpus.append(AMDDevice(f"AMD {_architecture(facts)}", facts.get("cpu_cores_count", 0) > 0))
    return [gpus[number] for number in _numbers("ROCR_VISIBLE_DEVICES", len(gpus))]


def visible_to_rocm() -> list[tuple[int, str]]:
    """Index and name of the GPUs that torch's ROCm build counts; none if HIP_VISIBLE_DEVICES is set."""
    if HIP in os.environ:
        return []
    gpus = amd_gpus()
    return [(number, gpus[number].name) for number in _numbers(CUDA, len(gpus))]


def unused(*, hip: str | None, xpu: str | None) -> str | None:
    """Why a machine without NVIDIA's driver trains on the CPU although it may have a GPU; None if it has none.

    ``hip``, ``xpu``: the versions for which the installed torch was built.
    """
    gpus = amd_gpus()
    if hip is not None:
        if not gpus:
            return f"The installed torch is for ROCm {hip}, but the kernel lists no AMD GPU; see rocminfo"
        if HIP in os.environ:
            return f"{HIP} is set; set {CUDA} instead, which ROCm reads too"
        return f"{CUDA}={os.environ.get(CUDA)} names none of this machine's {len(gpus)} AMD GPUs"
    if xpu is not None:
        return "The installed torch is for Intel's GPUs (XPU), which no strategy here uses"
    if cards := [gpu for gpu in gpus if not gpu.is_integrated]:
        more = f" and {len(cards) - 1} more" * (len(cards) > 1)
        return f"This machine has {cards[0].name}{more}, but the installed torch is not a ROCm build"
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "No strategy here uses Apple's GPU (MPS)"
    return None


def _architecture(facts: dict[str, int]) -> str:
    """As compilers call it: 90402 is gfx942."""
    version = facts.get("gfx_target_version", 0)
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}"


def _numbers(variable: str, count: int) -> list[int]:
    """The numbers below ``count`` that a variable lists, up to the first one that is none; all if it is not set."""
    listed = os.environ.get(variable)
    if listed is None:
        return [*range(count)]
    numbers: list[int] = []
    for entry in listed.split(","):
        if not entry.strip().isdecimal() or int(entry) >= count:
            break
        numbers.append(int(entry))
    return numbers
