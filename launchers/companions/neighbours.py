"""Notices that a run's ranks get less CPU time than they ask for, and says so once, with what would help.

Linux counts for each thread how long it waited for a core (run delay, in /proc/<pid>/task/<tid>/schedstat).
Sources: https://docs.kernel.org/scheduler/sched-stats.html, and psutil for the rest.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple

import psutil

from manyheads.launchers.companions import Accompanied, Span
from manyheads.runner.errors import warn
from manyheads.runner.machine.hardware import bound_cores
from manyheads.runner.machine.hindrances import throttled_seconds
from manyheads.runner.machine.process import in_background
from manyheads.runner.run.crowding import Crowding

SPAN = Span.RANKS
EVERY_SECONDS = 5.0
ENOUGH = 2.0  # seconds from which on averages are meant
# Below these fractions nothing is said: a run always waits a little, for itself.
WAITED, TAKEN = 0.2, 0.1


class Counters(NamedTuple):
    """Seconds since the machine, or the process, was started.

    ``used``: of the cores that the run may use, by any program; ``stolen``: of them, by the machine's host; ``own``: of
    the run's processes; ``waited``: for which their threads waited for a core; ``throttled``: of the control group.
    """

    at: float
    used: float
    stolen: float
    own: float
    waited: float
    throttled: float

    @classmethod
    def now(cls) -> "Counters":
        """The values for this process and those that it has started, directly or not."""
        cores = psutil.cpu_times(percpu=True)
        usable = [cores[core] for core in bound_cores() if core < len(cores)]
        idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in usable)
        stolen = sum(getattr(times, "steal", 0.0) for times in usable)
        # guest time is also in user and nice
        total = sum(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0) for times in usable)
        busy = waited = 0.0
        for process in _family():
            with suppress(psutil.Error):
                times = process.cpu_times()
                busy += times.user + times.system
                waited += _run_delay(process.pid)
        return cls(time.monotonic(), total - idle - stolen, stolen, busy, waited, throttled_seconds())


def _family() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def _run_delay(pid: int) -> float:
    """Seconds for which the threads of a process waited for a core; 0 for one that has ended, or on other systems."""
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):
            nanoseconds += int(task.read_text().split()[1])
    return nanoseconds / 1e9


@contextmanager
def accompany(run: Accompanied) -> Iterator[None]:
    """A context in which the ranks' CPU time is watched, if they are on this machine."""
    if not run.run.launcher.is_here:
        yield
        return
    with in_background(partial(_watch, run), name="neighbours"):
        yield


def _watch(run: Accompanied, done: Event) -> None:
    begun = last = Counters.now()
    is_said = not run.trains  # what runs for another command is reported by that
    has_ended = False
    while not has_ended:
        has_ended = done.wait(EVERY_SECONDS)
        now = Counters.now()
        if run.trains and not run.folder.steps.exists():  # it loads its libraries, or is refused
            begun = last = now
            continue
        if not is_said and (crowding := crowded(run, last, now)) is not None:
            warn(crowding.sentence)
            is_said = True
        if (crowding := crowded(run, begun, now)) is not None:
            with suppress(OSError):  # a full disk
                crowding.write(run.folder)
        last = now


def crowded(run: Accompanied, before: Counters, now: Counters) -> Crowding | None:
    """What the run lacked between two moments; None if it had the cores that it asked for."""
    seconds, cores, launcher = now.at - before.at, len(bound_cores()), run.run.launcher
    used, busy, waited = now.used - before.used, max(0.0, now.own - before.own), max(0.0, now.waited - before.waited)
    crowding = Crowding(
        seconds=seconds,
        cores=cores,
        others=min(float(cores), max(0.0, used - busy) / max(seconds, 1e-9)),
        waited=waited / max(waited + busy, 1e-9),
        throttled=(now.throttled - before.throttled) / max(seconds, 1e-9),
        stolen=(now.stolen - before.stolen) / max(seconds * cores, 1e-9),
        threads=run.folder.chosen_threads() or launcher.threads_per_rank,
        loaders=run.run.data.num_workers,
    )
    taken = max(crowding.others / cores, crowding.throttled, crowding.stolen)
    lacks = max(crowding.waited, crowding.throttled) > WAITED  # what is throttled need not count as waiting
    return crowding if seconds >= ENOUGH and lacks and taken > TAKEN else None
