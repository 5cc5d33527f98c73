"""What NVIDIA's driver says of the GPUs, by NVML; found without CUDA, which would tie this process to them.

Source: https://docs.nvidia.com/deploy/nvml-api/.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# Why clocks are lower than they could be, by NVML's bits, without idleness and clocks that somebody has set.
# Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html.
THROTTLED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class Part(NamedTuple):
    """A GPU, or a slice of one that is cut up by MIG: what CUDA takes for a device."""

    name: str
    uuid: str


class Board(NamedTuple):
    """A GPU as it is plugged in. ``slices``: of one that is cut up, which then is no device itself; else None."""

    name: str
    uuid: str
    slices: tuple[Part, ...] | None = None

    @property
    def devices(self) -> tuple[Part, ...]:
        """What CUDA may count of it."""
        return (Part(self.name, self.uuid),) if self.slices is None else self.slices


def read() -> tuple[str, list[Board]]:
    """The driver's version and the GPUs in the order of the bus; without driver ("", []).

    A GPU that does not answer, as one that fell off the bus, is left out.
    """
    with session() as nvml:
        if nvml is None:
            return "", []
        boards = (_board(nvml, index) for index in range(asked(nvml.nvmlDeviceGetCount) or 0))
        version = asked(nvml.nvmlSystemGetDriverVersion)
        return _text(version or "unknown"), [board for board in boards if board is not None]


@contextmanager
def session() -> Iterator[Any]:
    """The module ``pynvml``, ready to be asked; None where there is no driver."""
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
    found = (_part(nvml, asked(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, each)) for each in range(count))
    return Board(*part, tuple(each for each in found if each is not None))


def _part(nvml: Any, handle: Any) -> Part | None:
    if handle is None:
        return None
    name, uuid = asked(nvml.nvmlDeviceGetName, handle), asked(nvml.nvmlDeviceGetUUID, handle)
    return None if name is None or uuid is None else Part(_text(name), _text(uuid))


def asked(question: Any, *arguments: Any) -> Any:
    """The answer; None where the driver, or this GPU, has none."""
    import pynvml

    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def memory(uuids: list[str]) -> int | None:
    """The least memory that any of these GPUs has in all, in bytes; None where there is none, or it is not said."""
    with session() as nvml:
        if nvml is None:
            return None
        handles = [asked(nvml.nvmlDeviceGetHandleByUUID, uuid) for uuid in uuids]
        found = [asked(nvml.nvmlDeviceGetMemoryInfo, handle) for handle in handles if handle is not None]
        return min((int(each.total) for each in found if each is not None), default=None)
