"""gpu.csv: load, memory, clocks and temperature of a run's GPUs while it trains, as reported by the driver (NVML)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from manyheads.launchers.load.sampling import MB, Sample, recorded
from manyheads.runner.machine.gpus import THROTTLED, asked, session

COLUMNS = (
    *("time", "device", "utilisation_percent", "memory_used_mb", "memory_total_mb"),
    *("sm_clock_mhz", "power_w", "temperature_c", "throttled_by"),
)


@contextmanager
def gpu_load(path: Path, indices: list[int]) -> Iterator[None]:
    """Append rows to ``path`` meanwhile. ``indices``: the driver's numbers; without any, no file is written.

    ``device`` is numbered as the run's ranks; memory is that of all processes; ``throttled_by``: the sum of those in
    THROTTLED. Values that a GPU does not report stay empty.
    """
    if not indices:
        yield
        return
    with recorded(path, COLUMNS, partial(_gpus, indices)):
        yield


@contextmanager
def _gpus(indices: list[int]) -> Iterator[Sample]:
    with session() as nvml:
        handles = [asked(nvml.nvmlDeviceGetHandleByIndex, index) for index in indices] if nvml else []
        known = [] if None in handles else handles
        yield lambda: [[device, *_state(nvml, handle)] for device, handle in enumerate(known)]


def _state(nvml: Any, handle: Any) -> list[Any]:
    """What follows time and device in a row."""
    load, memory = asked(nvml.nvmlDeviceGetUtilizationRates, handle), asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    power = asked(nvml.nvmlDeviceGetPowerUsage, handle)
    reasons = asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return [
        None if load is None else load.gpu,
        *((None, None) if memory is None else (int(memory.used) // MB, int(memory.total) // MB)),
        asked(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        None if power is None else power / 1000,
        asked(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        None if reasons is None else sum(bit for bit in THROTTLED if reasons & bit),
    ]
