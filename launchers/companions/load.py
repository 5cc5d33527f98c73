"""How busy the machine is while a run trains, measured from outside the run, with a row every second.

host.csv: CPUs, memory, disks, network. gpu.csv: load, memory, clocks and temperature of the run's GPUs, as reported by
the driver (NVML).
"""

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from manyheads.launchers.companions import Accompanied, Span
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import THROTTLED, asked, session
from manyheads.runner.machine.process import in_background
from manyheads.runner.run.data_files import no_link

SPAN = Span.RANKS
EVERY_SECONDS = 1.0
MB = 1024 * 1024
Sample = Callable[[], Iterable[Sequence[Any]]]  # returns the current rows, without the time
Source = Callable[[], AbstractContextManager[Sample]]  # opens what is measured
# Bytes since the machine was started; a row has their rate since the previous one.
COUNTERS = {
    "disk_read_mb_per_second": lambda disk, network: disk.read_bytes,
    "disk_written_mb_per_second": lambda disk, network: disk.write_bytes,
    "network_received_mb_per_second": lambda disk, network: network.bytes_recv,
    "network_sent_mb_per_second": lambda disk, network: network.bytes_sent,
}
HOST_COLUMNS = ("time", "cpu_percent", "memory_used_mb", "memory_total_mb", *COUNTERS)
GPU_COLUMNS = (
    *("time", "device", "utilisation_percent", "memory_used_mb", "memory_total_mb"),
    *("sm_clock_mhz", "power_w", "temperature_c", "throttled_by"),
)


@contextmanager
def accompany(run: Accompanied) -> Iterator[None]:
    """A context in which the load of this machine and of the run's GPUs on it is recorded."""
    gpus = hardware.gpu_indices()[: run.run.gpus_here]
    with host_load(run.folder.host) if run.trains else nullcontext(), gpu_load(run.folder.gpu, gpus):
        yield


def host_load(path: Path) -> AbstractContextManager[None]:
    """A context that appends rows to ``path``.

    All values are of the whole machine, including other processes: ``cpu_percent`` of all its cores since the previous
    row; used memory is what is not available to processes. Values that a machine does not report stay empty.
    """
    return recorded(path, HOST_COLUMNS, _host)


@contextmanager
def _host() -> Iterator[Sample]:
    psutil.cpu_percent()  # the next call measures from here on
    last = (time.monotonic(), _counters())

    def sample() -> list[list[float | int | None]]:
        nonlocal last
        (before, counted), last = last, (time.monotonic(), _counters())
        seconds = max(last[0] - before, 1e-9)
        rates = [_rate(old, new, seconds) for old, new in zip(counted, last[1], strict=True)]
        memory = psutil.virtual_memory()
        return [[psutil.cpu_percent(), (memory.total - memory.available) // MB, memory.total // MB, *rates]]

    yield sample


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None else round((now - before) / MB / seconds, 3)


def _counters() -> list[int | None]:
    counters: list[int | None] = []
    sources = psutil.disk_io_counters(), psutil.net_io_counters()  # None in containers that hide them
    for of in COUNTERS.values():
        try:
            counters.append(of(*sources))
        except AttributeError:
            counters.append(None)
    return counters


@contextmanager
def gpu_load(path: Path, indices: list[int]) -> Iterator[None]:
    """A context that appends rows to ``path``. ``indices``: the driver's numbers; without any, no file is written.

    ``device`` is numbered as the run's ranks; memory is that of all processes; ``throttled_by``: the sum of the
    driver's reasons that are in THROTTLED. Values that a GPU does not report stay empty.
    """
    if not indices:
        yield
        return
    with recorded(path, GPU_COLUMNS, partial(_gpus, indices)):
        yield


@contextmanager
def _gpus(indices: list[int]) -> Iterator[Sample]:
    with session() as nvml:
        handles = [asked(nvml.nvmlDeviceGetHandleByIndex, index) for index in indices] if nvml else []
        gpus = [] if None in handles else handles
        yield lambda: [[device, *_state(nvml, handle)] for device, handle in enumerate(gpus)]


def _state(nvml: Any, handle: Any) -> list[Any]:
    """The values of a row after time and device."""
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


@contextmanager
def recorded(path: Path, columns: Sequence[str], source: Source) -> Iterator[None]:
    """A context in which a thread appends rows to ``path``.

    ``columns``: the first is the time, in seconds since 1970. A full disk ends the recording; rows already written
    stay.
    """
    with in_background(partial(_record, path, columns, source), name=path.name):
        yield


def _record(path: Path, columns: Sequence[str], source: Source, done: Event) -> None:
    with source() as sample:
        try:
            with open(path, "a", newline="", buffering=1, opener=no_link) as file:
                writer = csv.writer(file)
                if not file.tell():
                    writer.writerow(columns)
                while not done.wait(EVERY_SECONDS):
                    for row in sample():
                        writer.writerow([time.time(), *row])
        except OSError:
            return
