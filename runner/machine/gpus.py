"""Asks NVIDIA's driver about the GPUs, by NVML, without CUDA, which would tie this process to them.

Source: https://docs.nvidia.com/deploy/nvml-api/.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# Reasons for reduced clocks, by NVML's bits, except for idleness and clocks that a user has set.
# Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html.
THROTTLED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class CUDADevice(NamedTuple):
    """A device as CUDA counts them: a GPU, or a MIG slice of one."""

    name: str
    uuid: str


class Board(NamedTuple):
    """A physical GPU. ``slices``: in MIG mode its slices, which then are the devices; else None."""

    name: str
    uuid: str
    slices: tuple[CUDADevice, ...] | None = None

    @property
    def devices(self) -> tuple[CUDADevice, ...]:
        """The devices that CUDA may count on this board."""
        return (CUDADevice(self.name, self.uuid),) if self.slices is None else self.slices


def read() -> tuple[str, list[Board]]:
    """The driver's version and the GPUs in the order of the bus; without a driver ("", []).

    A GPU that does not answer, such as one that fell off the bus, is skipped.
    """
    with session() as nvml:
        if nvml is None:
            return "", []
        boards = (_board(nvml, index) for index in range(asked(nvml.nvmlDeviceGetCount) or 0))
        version = asked(nvml.nvmlSystemGetDriverVersion)
        return _text(version or "unknown"), [board for board in boards if board is not None]


@contextmanager
def session() -> Iterator[Any]:
    """A context with the module ``pynvml``, initialized; None without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _board(nvml: Any, index: int) -> Board | None:
    handle = asked(nvml.nvmlDeviceGetHandleByIndex, index)
    part = _part(nvml, handle)
    if part is None:
        return None
    if not (asked(nvml.nvmlDeviceGetMigMode, handle) or [0])[0]:
        return Board(*part)
    count = asked(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    slices = (_part(nvml, asked(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)) for number in range(count))
    return Board(*part, tuple(gpu_slice for gpu_slice in slices if gpu_slice is not None))


def _part(nvml: Any, handle: Any) -> CUDADevice | None:
    if handle is None:
        return None
    name, uuid = asked(nvml.nvmlDeviceGetName, handle), asked(nvml.nvmlDeviceGetUUID, handle)
    return None if name is None or uuid is None else CUDADevice(_text(name), _text(uuid))


def asked(question: Any, *arguments: Any) -> Any:
    """The result of a call of NVML; None if the driver, or this GPU, has none."""
    import pynvml

    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def memory(uuids: list[str]) -> int | None:
    """Total memory of the smallest of these GPUs, in bytes; None if it is unknown."""
    with session() as nvml:
        if nvml is None:
            return None
        handles = [asked(nvml.nvmlDeviceGetHandleByUUID, uuid) for uuid in uuids]
        infos = [asked(nvml.nvmlDeviceGetMemoryInfo, handle) for handle in handles if handle is not None]
        return min((int(info.total) for info in infos if info is not None), default=None)


TERA = 1e12
# Dense TFLOP/s, by the first pattern in the device's name. "half": fp16 and bf16, summed in fp32; None: no units for
# that format, or no figure on which sources agree. Blackwell, H20: NVIDIA's figures as in
# https://glennklockwood.com/garden/processors/B200 and /B300, and in nanochat's table; others: NVIDIA's data sheets.
PEAKS: dict[str, dict[str, float | None]] = {
    r"GB[23]00": {"half": 2500, "tf32": 1250, "fp32": None, "fp64": None},
    r"B[23]00": {"half": 2250, "tf32": None, "fp32": None, "fp64": None},
    r"H20\b": {"half": 148, "tf32": None, "fp32": None, "fp64": None},
    r"H100 PCIe": {"half": 756, "tf32": 378, "fp32": 51, "fp64": 51},
    r"H[12]00 NVL": {"half": 835, "tf32": 417, "fp32": 60, "fp64": 60},
    r"H100|H200|GH200": {"half": 989, "tf32": 494, "fp32": 67, "fp64": 67},
    r"A100": {"half": 312, "tf32": 156, "fp32": 19.5, "fp64": 19.5},
    r"A40\b": {"half": 149.7, "tf32": 74.8, "fp32": 37.4, "fp64": None},
    r"A6000": {"half": 154.8, "tf32": 77.4, "fp32": 38.7, "fp64": None},
    r"A10G": {"half": 70, "tf32": 35, "fp32": None, "fp64": None},
    r"A10\b": {"half": 125, "tf32": 62.5, "fp32": 31.2, "fp64": None},
    r"L40\b": {"half": 181, "tf32": 90.5, "fp32": 90.5, "fp64": None},
    r"L40S": {"half": 362, "tf32": 183, "fp32": 91.6, "fp64": None},
    r"L4\b": {"half": 121, "tf32": 60, "fp32": 30.3, "fp64": None},
    r"V100.SXM2": {"half": 125, "tf32": None, "fp32": 15.7, "fp64": 7.8},
    r"V100.PCIE": {"half": 112, "tf32": None, "fp32": 14, "fp64": 7},
    r"\bT4\b": {"half": 65, "tf32": None, "fp32": 8.1, "fp64": None},
    r"RTX 5090\b(?! (?:D|Laptop))": {"half": 209.5, "tf32": 104.8, "fp32": 104.8, "fp64": None},
    r"RTX 4090\b(?! (?:D|Laptop))": {"half": 165.2, "tf32": 82.6, "fp32": 82.6, "fp64": None},
    r"RTX 3090\b(?! Ti)": {"half": 71, "tf32": 35.6, "fp32": 35.6, "fp64": None},
}


def peak(device: str, products: str) -> float | None:
    """Peak FLOP/s of matrix products in a format: half, tf32, fp32 or fp64; None if it is not listed here.

    ``device``: its name from the driver. Also None for a MIG slice, which has only a part of the GPU's peak.
    """
    if "MIG" in device:
        return None
    stated = next((rates for pattern, rates in PEAKS.items() if re.search(pattern, device)), {})
    tera = stated.get(products)
    return None if tera is None else tera * TERA
