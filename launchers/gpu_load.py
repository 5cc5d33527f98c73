"""gpu.csv: how busy, how full, how fast and how hot a run's GPUs are while it trains, as the driver says (NVML)."""

import csv
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from manyheads.launchers.background import in_background
from manyheads.runner.machine.driver import THROTTLED, asked, session
from manyheads.runner.run.data_files import no_link

COLUMNS = (
    *("time", "device", "utilisation_percent", "memory_used_mb", "memory_total_mb"),
    *("sm_clock_mhz", "power_w", "temperature_c", "throttled_by"),
)
EVERY_SECONDS = 1.0
_MB = 1024 * 1024


@contextmanager
def gpu_load(path: Path, indices: list[int]) -> Iterator[None]:
    """Append rows to ``path`` meanwhile, from a thread. ``indices``: the driver's; none of them, no file.

    ``time`` is in seconds since 1970, ``device`` counts as the run's ranks do, memory is that of all processes;
    ``throttled_by``: the sum of those in THROTTLED. What a GPU does not tell stays empty.
    """
    if not indices:
        yield
        return
    with in_background(partial(_sample, path, indices), name="gpu load"):
        yield


def _sample(path: Path, indices: list[int], done: threading.Event) -> None:
    with session() as nvml:
        handles = [asked(nvml.nvmlDeviceGetHandleByIndex, index) for index in indices] if nvml else []
        if None in handles or not handles:
            return
        try:
            with open(path, "a", newline="", buffering=1, opener=no_link) as file:
                writer = csv.writer(file)
                if not file.tell():
                    writer.writerow(COLUMNS)
                width = len(path.read_text().partition("\n")[0].split(","))  # a run from before may have fewer columns
                while not done.wait(EVERY_SECONDS):
                    for device, handle in enumerate(handles):
                        writer.writerow([time.time(), device, *_state(nvml, handle)][:width])
        except OSError:
            return  # a disk that is full: what there is stays


def _state(nvml: Any, handle: Any) -> list[Any]:
    """What follows time and device in a row."""
    load, memory = asked(nvml.nvmlDeviceGetUtilizationRates, handle), asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    power = asked(nvml.nvmlDeviceGetPowerUsage, handle)
    reasons = asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return [
        None if load is None else load.gpu,
        *((None, None) if memory is None else (int(memory.used) // _MB, int(memory.total) // _MB)),
        asked(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        None if power is None else power / 1000,
        asked(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        None if reasons is None else sum(bit for bit in THROTTLED if reasons & bit),
    ]
