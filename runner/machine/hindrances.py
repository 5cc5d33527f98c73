"""Possible causes of a slow rank, from counters of Linux and NVIDIA's driver: cores, clocks, disks, the network.

Sources for clocks: https://docs.kernel.org/admin-guide/pm/cpufreq.html, and
Documentation/ABI/testing/sysfs-devices-system-cpu. Virtual machines report neither clocks nor heat.
"""

import os
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from manyheads.runner.machine.control_groups import cpu_hierarchies
from manyheads.runner.machine.gpus import asked, session
from manyheads.runner.machine.hardware import bound_cores
from manyheads.runner.machine.numa import far_memory, is_far_from

CPUS = Path("/sys/devices/system/cpu")
PRESSURE = Path("/proc/pressure/io")
COUNTERS = Path("/proc/self/net/snmp")
INTERFACES = Path("/sys/class/net")


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
        return cls(len(bound_cores()), _ready(), throttled_seconds())

    def since(self, before: "CoreTime") -> "CoreTime":
        """The values, with seconds counted from ``before``."""
        return CoreTime(self.cores, self.ready - before.ready, self.throttled - before.throttled)


class Segments(NamedTuple):
    """TCP segments that this machine, or network namespace, has sent, and those that it had to retransmit."""

    sent: int = 0
    retransmitted: int = 0


class Hindrances(NamedTuple):
    """Counts of one rank; 0 for what its machine does not count.

    ``clock``: MHz of its core, on average; ``hot``: seconds for which heat lowered the clock of its cores; ``slowed``:
    seconds for which heat or the power limit lowered that of its GPU; ``far``: the fraction of its memory that is on
    another NUMA node than its cores; ``is_far``: whether its GPU is; ``disk``: seconds in which processes of its
    machine waited for a disk; ``segments``: TCP segments of its machine; ``link``: Mbit/s to other machines.
    """

    core: CoreTime
    clock: float = 0.0
    hot: float = 0.0
    slowed: float = 0.0
    far: float = 0.0
    is_far: bool = False
    disk: float = 0.0
    segments: Segments = Segments()
    link: int = 0

    @classmethod
    def now(cls, gpu: int | None) -> "Hindrances":
        """The values of this process now. ``gpu``: the driver's index of its GPU; None on CPUs."""
        return cls(
            CoreTime.now(),
            hot=hot_seconds(),
            slowed=0.0 if gpu is None else slowed_seconds(gpu),
            far=far_memory(),
            is_far=gpu is not None and is_far_from(gpu),
            disk=disk_seconds(),
            segments=segments(),
            link=link_speed(),
        )

    def since(self, before: "Hindrances") -> "Hindrances":
        """The values, with seconds and segments counted from ``before``."""
        old, new = before.segments, self.segments
        return self._replace(
            core=self.core.since(before.core),
            hot=self.hot - before.hot,
            slowed=self.slowed - before.slowed,
            disk=self.disk - before.disk,
            segments=Segments(new.sent - old.sent, new.retransmitted - old.retransmitted),
        )


def _ready() -> float:
    """Seconds for which the main thread waited for a core.

    Source: https://docs.kernel.org/scheduler/sched-stats.html.
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def throttled_seconds() -> float:
    """Seconds for which the control group of this process had used up its CPU quota.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, and the cpu controller of version 1.
    """
    for hierarchy in cpu_hierarchies():
        with suppress(OSError, ValueError):
            counters = dict(row.split() for row in (hierarchy.own / "cpu.stat").read_text().splitlines())
            if "throttled_usec" in counters:
                return int(counters["throttled_usec"]) / 1e6
            if "throttled_time" in counters:
                return int(counters["throttled_time"]) / 1e9
    return 0.0


def slowed_seconds(index: int) -> float:
    """Seconds since the driver was loaded for which heat or the power limit lowered a GPU's clock; 0 if not counted."""
    with session() as nvml:
        handle = asked(nvml.nvmlDeviceGetHandleByIndex, index) if nvml else None
        if handle is None:
            return 0.0
        policies = (nvml.NVML_PERF_POLICY_POWER, nvml.NVML_PERF_POLICY_THERMAL)
        violations = [asked(nvml.nvmlDeviceGetViolationStatus, handle, policy) for policy in policies]
        return sum(violation.violationTime for violation in violations if violation is not None) / 1e9


def clock() -> float:
    """MHz of the core that this thread runs on, now; 0 if it is unknown."""
    with suppress(OSError, ValueError, IndexError):
        core = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36]
        return int((CPUS / f"cpu{core}" / "cpufreq" / "scaling_cur_freq").read_text()) / 1000
    return 0.0


def hot_seconds() -> float:
    """Seconds since the machine was booted for which heat lowered the clock, on average over this process's cores."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return fmean(times) if (times := [_hot(core) for core in cores]) else 0.0


def _hot(core: int) -> float:
    """The longer of the times of a core and of its package; Intel's processors count them."""
    times = [0]
    for what in ("core", "package"):
        with suppress(OSError, ValueError):
            times.append(int((CPUS / f"cpu{core}" / "thermal_throttle" / f"{what}_throttle_total_time_ms").read_text()))
    return max(times) / 1000


def disk_seconds() -> float:
    """Seconds in which at least one process of this machine waited for a disk; 0 if the kernel does not count them.

    Source: https://docs.kernel.org/accounting/psi.html.
    """
    with suppress(OSError, ValueError, IndexError):
        some = PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return 0.0


def segments() -> Segments:
    """The segments since the machine was booted; zeros if the kernel does not count them.

    Source: https://docs.kernel.org/networking/snmp_counter.html.
    """
    with suppress(OSError, ValueError, KeyError):
        names, values = (line.split() for line in COUNTERS.read_text().splitlines() if line.startswith("Tcp:"))
        counters = dict(zip(names, values, strict=True))
        return Segments(int(counters["OutSegs"]), int(counters["RetransSegs"]))
    return Segments()


def link_speed() -> int:
    """Mbit/s of the interface to the run's other machines, which agents name in a variable; 0 if unknown."""
    with suppress(OSError, ValueError, KeyError):
        return max(0, int((INTERFACES / os.environ["GLOO_SOCKET_IFNAME"] / "speed").read_text()))
    return 0
