"""gpu.csv: how busy and how full a run's GPUs are while it trains, as the driver says (NVML)."""

import csv
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from manyheads.launchers.background import in_background
from manyheads.runner.run.data_files import no_link

COLUMNS = ("time", "device", "utilisation_percent", "memory_used_mb", "memory_total_mb")
EVERY_SECONDS = 1.0
_MB = 1024 * 1024


@contextmanager
def gpu_load(path: Path, indices: list[int]) -> Iterator[None]:
    """Append rows to ``path`` meanwhile, from a thread. ``indices``: the driver's; none of them, no file.

    ``time`` is in seconds since 1970, ``device`` counts as the run's ranks do, memory is that of all processes.
    """
    if not indices:
        yield
        return
    with in_background(partial(_sample, path, indices), name="gpu load"):
        yield


def _sample(path: Path, indices: list[int], done: threading.Event) -> None:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
        with open(path, "a", newline="", buffering=1, opener=no_link) as file:
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(COLUMNS)
            while not done.wait(EVERY_SECONDS):
                for device, handle in enumerate(handles):
                    load, memory = pynvml.nvmlDeviceGetUtilizationRates(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
                    writer.writerow([time.time(), device, load.gpu, int(memory.used) // _MB, int(memory.total) // _MB])
    except (pynvml.NVMLError, OSError):
        return  # a device that tells nothing (some MIG slices), a disk that is full: what there is stays
    finally:
        pynvml.nvmlShutdown()
