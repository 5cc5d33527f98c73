"""An equal part of the CPUs for each rank, however many there are: control groups of Linux, of either version.

A group's weight is the largest, so that other programs take nothing of what the quota allows.
"""

import ctypes
import os
import platform
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.launchers.environment import variables_set
from manyheads.runner.errors import Unavailable

VARIABLE = "MANYHEADS_QUOTA"  # how ranks learn of it: the prefix of their groups' names, and CPUs
MOUNTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup"))
PERIOD = 10_000  # microseconds, at least; in the 100 ms of the kernel, a rank would run and then stand still for long
TURN = 100_000  # nanoseconds, the shortest that the kernel has
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # numbers of the system call
SPREAD = 1_000  # microseconds by which periods differ; else chance would decide for good which ranks run at once
PATIENCE = 5.0  # seconds, until the kernel has forgotten a rank that ended
REMEDY = (
    "a CPU quota for each rank cannot be set here: that takes a control group with the cpu controller that this user "
    "may create groups in. Run it as root, outside of a container or in a privileged one."
)


@contextmanager
def quotas(cpus: float) -> Iterator[None]:
    """Meanwhile each rank that calls ``enter`` has this quota of CPUs. Raises Unavailable if it cannot be set."""
    prefix = f"manyheads-{os.getpid()}-"
    _remove("manyheads-*", ended=True)
    try:
        _place(f"{prefix}trial", cpus)
        with variables_set({VARIABLE: f"{prefix} {cpus}"}):
            yield
    finally:
        _remove(f"{prefix}*")


def enter(rank: int) -> None:
    """Let this process, its threads and its later children have the quota, if ranks have one.

    They are also woken soon, and pinned, so that ranks which wait for each other lose little beyond their quotas.
    """
    if VARIABLE in os.environ:
        (group(str(rank)) / "cgroup.procs").write_text("0")  # the process that writes
        pin(rank)
        _wake_soon()


def pin(rank: int, process: int = 0) -> None:
    """Let a process, by default this one with its threads, use one core only if its quota is less than a core.

    A quota is handed out to cores in pieces that are larger than it: a thread that wakes up on another core than the
    last one would wait for the next period.
    """
    cores = sorted(os.sched_getaffinity(0))
    if float(os.environ[VARIABLE].split()[1]) < 1:
        for task in [process] if process else map(int, os.listdir("/proc/self/task")):
            os.sched_setaffinity(task, {cores[rank % len(cores)]})


def _wake_soon() -> None:
    """Let this process's threads, and those that they start, run as soon as they are woken, and in short turns.

    By default, one that is woken waits until the turn of another one on its core ends, some milliseconds. Since Linux
    6.12; elsewhere nothing changes. Source: sched_setattr(2).
    """
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, TURN, 0, 0)
    number = SCHED_SETATTR.get(platform.machine())
    for task in os.listdir("/proc/self/task") if number else ():
        ctypes.CDLL(None).syscall(number, int(task), attributes, 0)


def group(name: str) -> Path:
    """The control group of this name, with the quota. Only within ``quotas``."""
    prefix, cpus = os.environ[VARIABLE].split()
    return _place(f"{prefix}{name}", float(cpus))


def _place(name: str, cpus: float) -> Path:
    """A control group with this name and quota, which may exist."""
    for parent in _parents():
        group = parent / name
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            if _limit(group, cpus):
                return group
            group.rmdir()
    raise Unavailable.at("--validate", True, f": {REMEDY}")


def _limit(group: Path, cpus: float) -> bool:
    """Set the quota of a group; false if it has no controller of CPUs."""
    period = PERIOD + zlib.crc32(group.name.encode()) % SPREAD
    quota = round(cpus * period)
    second = {"cpu.max": f"{quota} {period}", "cpu.weight": "10000"}
    first = {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota), "cpu.shares": "262144"}
    for settings in (second, first):
        if all((group / name).exists() for name in settings):
            for name, value in settings.items():
                (group / name).write_text(value)
            return True
    return False


def _parents() -> Iterator[Path]:
    """Groups that new ones can be created in: beside this process, then above."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" or "cpu" in controllers.split(","):
                mount = MOUNTS[-1] if controllers == "" else MOUNTS[0].with_name(controllers)
                own = mount / path.lstrip("/")
                yield from (each for each in own.parents if each.is_relative_to(mount))
    yield from MOUNTS


def _remove(pattern: str, *, ended: bool = False) -> None:
    """Remove groups that are empty. ``ended``: only those of processes that no longer run; else waits for theirs."""
    found = {group for parent in {*_parents()} for group in parent.glob(pattern)}
    until = time.monotonic() + PATIENCE
    for group in found:
        if ended and Path("/proc", group.name.split("-")[1]).exists():
            continue
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                if ended or time.monotonic() > until:
                    break
                time.sleep(0.02)
