"""How long this process waited for a CPU core, as Linux counts it, and how many cores it may use."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.machine.control_groups import cpu_hierarchies


class CoreTime(NamedTuple):
    """A process's use of cores since it began.

    ``cores``: number of cores that it may use; ``ready``: seconds for which its main thread could have run, but waited
    for a core; ``throttled``: seconds for which its CPU quota was used up. 0 if the system does not count them.
    """

    cores: int
    ready: float
    throttled: float

    @classmethod
    def now(cls) -> "CoreTime":
        """The values of this process now."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(cores, _ready(), _throttled())

    def since(self, before: "CoreTime") -> "CoreTime":
        """The values, with seconds counted from ``before``."""
        return CoreTime(self.cores, self.ready - before.ready, self.throttled - before.throttled)


def _ready() -> float:
    """Source: https://docs.kernel.org/scheduler/sched-stats.html."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _throttled() -> float:
    """Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, and the cpu controller of version 1."""
    for hierarchy in cpu_hierarchies():
        with suppress(OSError, ValueError):
            found = dict(row.split() for row in (hierarchy.own / "cpu.stat").read_text().splitlines())
            if "throttled_usec" in found:
                return int(found["throttled_usec"]) / 1e6
            if "throttled_time" in found:
                return int(found["throttled_time"]) / 1e9
    return 0.0
