"""The clock of this process's cores, and whether heat lowers it, as Linux reports them.

Source: https://docs.kernel.org/admin-guide/pm/cpufreq.html, and Documentation/ABI/testing/sysfs-devices-system-cpu.
Virtual machines report neither.
"""

import os
from contextlib import suppress
from pathlib import Path
from statistics import fmean

CPUS = Path("/sys/devices/system/cpu")


def clock() -> float:
    """MHz of the core that this thread runs on, now; 0 if it is unknown."""
    with suppress(OSError, ValueError, IndexError):
        core = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36]
        return int((CPUS / f"cpu{core}" / "cpufreq" / "scaling_cur_freq").read_text()) / 1000
    return 0.0


def hot_seconds() -> float:
    """Seconds for which a core of this process had a lower clock because of heat, on average, since it was booted."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return fmean(times) if (times := [_hot(core) for core in cores]) else 0.0


def _hot(core: int) -> float:
    """The longer of the times of a core and of its package; Intel's processors count them."""
    found = [0]
    for what in ("core", "package"):
        with suppress(OSError, ValueError):
            found.append(int((CPUS / f"cpu{core}" / "thermal_throttle" / f"{what}_throttle_total_time_ms").read_text()))
    return max(found) / 1000
