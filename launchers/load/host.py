"""host.csv: load of a run's machine while it trains: CPUs, memory, disks, network."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from manyheads.launchers.load.sampling import MB, Sample, recorded

# Bytes since the machine was started, of which the difference is written down.
COUNTERS = {
    "disk_read_mb_per_second": lambda disk, network: disk.read_bytes,
    "disk_written_mb_per_second": lambda disk, network: disk.write_bytes,
    "network_received_mb_per_second": lambda disk, network: network.bytes_recv,
    "network_sent_mb_per_second": lambda disk, network: network.bytes_sent,
}
COLUMNS = ("time", "cpu_percent", "memory_used_mb", "memory_total_mb", *COUNTERS)


def host_load(path: Path) -> AbstractContextManager[None]:
    """Append rows to ``path`` meanwhile.

    All values are of the whole machine, including other processes: ``cpu_percent`` of all its cores since the previous
    row; used memory is what is not available to processes. Values that a machine does not report stay empty.
    """
    return recorded(path, COLUMNS, _host)


@contextmanager
def _host() -> Iterator[Sample]:
    psutil.cpu_percent()  # from here on
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
    found: list[int | None] = []
    sources = psutil.disk_io_counters(), psutil.net_io_counters()  # None in containers that hide theirs
    for of in COUNTERS.values():
        try:
            found.append(of(*sources))
        except AttributeError:
            found.append(None)
    return found
