"""How long this process had to wait for a core, as the kernel of Linux counts it, and what it may run on."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GROUPS = Path("/sys/fs/cgroup")


class CoreTime(NamedTuple):
    """Seconds since the process began. Zeros if the system does not count them.

    ``cores``: that it may run on; ``ready``: in which its main thread could have run, but another one had the core;
    ``throttled``: in which its CPU quota was used up.
    """

    cores: int
    ready: float
    throttled: float

    @classmethod
    def now(cls) -> "CoreTime":
        """As of now."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(cores, _ready(), _throttled())

    def since(self, before: "CoreTime") -> "CoreTime":
        """The seconds since another time of this process."""
        return CoreTime(self.cores, self.ready - before.ready, self.throttled - before.throttled)


def _ready() -> float:
    """Source: https://docs.kernel.org/scheduler/sched-stats.html."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _throttled() -> float:
    """Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, and the cpu controller of version 1."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            mount = GROUPS / controllers if controllers else GROUPS
            if not controllers or "cpu" in controllers.split(","):
                with suppress(OSError):
                    found = dict(row.split() for row in (mount / path.strip("/") / "cpu.stat").read_text().splitlines())
                    if "throttled_usec" in found:
                        return int(found["throttled_usec"]) / 1e6
                    if "throttled_time" in found:
                        return int(found["throttled_time"]) / 1e9
    return 0.0
