"""A CPU quota for each rank, independent of the number of ranks, by Linux control groups of version 1 or 2.

Each group has the largest possible weight, so that other programs do not take away what the quota allows.
"""

import ctypes
import math
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
from manyheads.runner.machine.control_groups import cpu_hierarchies
from manyheads.runner.run.program import Program

VARIABLE = "MANYHEADS_QUOTA"  # tells ranks the prefix of their groups' names, and the quota in CPUs
PERIOD = 10_000  # microseconds, at least; with the kernel's default of 100 ms, ranks would be throttled for long
LEAST, MOST = 1_000, 1_000_000  # microseconds: the smallest quota and the longest period that the kernel allows
TURN = 100_000  # nanoseconds: the shortest time slice that the kernel allows
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # numbers of the system call
SPREAD = 1_000  # microseconds by which periods differ, so that ranks do not stay in or out of phase by chance
OFFERED = "cgroup.subtree_control"  # the file that lists the controllers of the groups below, in version 2
PATIENCE = 5.0  # seconds to wait until the group of a rank that ended can be removed
REMEDY = (
    "a CPU quota for each rank cannot be set here: that needs a control group with the cpu controller in which this "
    "user may create groups and put processes into them. Run it as root, outside of a container or in a privileged one."
)


@contextmanager
def quotas(cpus: float) -> Iterator[None]:
    """A context in which each rank that calls ``enter`` has this quota. Raises Unavailable if it cannot be set."""
    prefix = f"manyheads-{os.getpid()}-"
    _remove("manyheads-*", ended=True)
    changed: list[Path] = []
    try:
        try:
            group = _place(f"{prefix}trial", cpus)
        except Unavailable:
            changed += filter(_offer, reversed(_parents()))  # the topmost first: a group can only pass on what it has
            group = _place(f"{prefix}trial", cpus)
        _try(group)
        with variables_set({VARIABLE: f"{prefix} {cpus}"}):
            yield
    finally:
        _remove(f"{prefix}*")
        for parent in reversed(changed):
            with suppress(OSError):  # others may have begun to use it
                (parent / OFFERED).write_text("-cpu")


def enter(rank: int) -> None:
    """Apply the quota to this process, its threads and its later children, if ranks have one.

    They are also pinned and given short time slices, so that ranks which wait for each other lose little time beyond
    their quotas.
    """
    if VARIABLE in os.environ:
        (group(str(rank)) / "cgroup.procs").write_text("0")  # 0: the process that writes
        pin(rank)
        _wake_soon()


def pin(rank: int, process: int = 0) -> None:
    """Pin a process, by default this one with its threads, to one core if its quota is less than a core.

    The kernel hands a quota out to cores in slices that are larger than such a quota, so a thread that wakes up on
    another core would wait for the next period.
    """
    cores = sorted(os.sched_getaffinity(0))
    if float(os.environ[VARIABLE].split()[1]) < 1:
        for task in [process] if process else map(int, os.listdir("/proc/self/task")):
            os.sched_setaffinity(task, {cores[rank % len(cores)]})


def _wake_soon() -> None:
    """Give this process's threads, and those that they start, short time slices, so that they run soon when woken.

    By default, a thread that is woken waits for the end of another one's time slice, some milliseconds. Since Linux
    6.12; elsewhere nothing changes. Source: sched_setattr(2).
    """
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, TURN, 0, 0)
    number = SCHED_SETATTR.get(platform.machine())
    for task in os.listdir("/proc/self/task") if number else ():
        ctypes.CDLL(None).syscall(number, int(task), attributes, 0)


def group(name: str) -> Path:
    """The control group with this name, which has the quota. Only within ``quotas``."""
    prefix, cpus = os.environ[VARIABLE].split()
    return _place(f"{prefix}{name}", float(cpus))


def _place(name: str, cpus: float) -> Path:
    """Create a control group with this name and quota, unless it exists. Raises Unavailable."""
    for parent in _parents():
        group = parent / name
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            if _limit(group, cpus):
                return group
            group.rmdir()
    raise Unavailable(REMEDY)


def _offer(parent: Path) -> bool:
    """Give the groups below ``parent`` the cpu controller where version 2 requires that; return whether it changed.

    The kernel refuses it, unless ``parent`` is the root, if processes are in ``parent`` itself, or if its own parent
    does not offer the controller.
    """
    with suppress(OSError):
        known, offered = ((parent / name).read_text().split() for name in ("cgroup.controllers", OFFERED))
        if "cpu" in known and "cpu" not in offered:
            (parent / OFFERED).write_text("+cpu")
            return True
    return False


def _try(group: Path) -> None:
    """Put a process into the group. Raises Unavailable if this user may not do that."""
    tried = Program(("sh", "-c", 'echo 0 > "$0"', str(group / "cgroup.procs"))).ask()
    if tried.code:
        raise Unavailable(f"{REMEDY} The system says: {tried.errors.strip()}")


def _limit(group: Path, cpus: float) -> bool:
    """Set the quota of a group; return False if it has no cpu controller."""
    period = min(MOST, max(PERIOD, math.ceil(LEAST / cpus)) + zlib.crc32(group.name.encode()) % SPREAD)
    quota = max(LEAST, round(cpus * period))
    second = {"cpu.max": f"{quota} {period}", "cpu.weight": "10000"}
    first = {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota), "cpu.shares": "262144"}
    for settings in (second, first):
        if all((group / name).exists() for name in settings):
            for name, value in settings.items():
                (group / name).write_text(value)
            return True
    return False


def _parents() -> list[Path]:
    """Groups in which new ones may be created: the parent of this process's group, then those above."""
    return [parent for hierarchy in cpu_hierarchies() for parent in hierarchy.above]


def _remove(pattern: str, *, ended: bool = False) -> None:
    """Remove groups that match. ``ended``: only those of programs that no longer run; otherwise wait for the ranks."""
    found = {group for parent in _parents() for group in parent.glob(pattern)}
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
