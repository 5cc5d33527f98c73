"""Measure a run's parent against the number of its machines.

``python -m tests.benchmarks.engines [--engine processes|namespaces|slurm|ray] [--machines 8 32 128] [--storm WAVES]``

Machines are started by the real engine, all on this one. In place of a rank, a stand-in within each machine's agent
joins, beats and ends: what is measured is the machinery around ranks. For each number of machines: a run without loss,
and one in which a machine is lost. With ``--storm``, 5 % of the machines are lost again and again.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from manyheads.launchers.nodes.starting import AGENT
from tests.benchmarks.engines.parent import Asked
from tests.benchmarks.engines.places import ENGINES, Place, agents

MACHINES = (8, 32, 128)
SECONDS = 10.0  # for which the stand-ins beat
SETTLED = 2.0  # after the start of all ranks
LOST = 0.05  # of the machines, in each wave of a storm
MOST = 1200.0  # seconds that a run may take
ROOT = Path(__file__).parents[3]
HEAD = ("machines", "start, s", "end, s", "parent's CPU", "MB", "threads", "messages/s", "its helpers, MB")


class Run:
    """A run whose parent is a process of its own, once its first attempt has started."""

    def __init__(self, place: Place, machines: int, seconds: float):
        asked = Asked(machines, seconds, place.overrides, place.settings)
        command = [*place.prefix, sys.executable, "-m", "tests.benchmarks.engines.parent", asked.text()]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # agents import the stand-in
        environment = {**os.environ, **place.environment, "PYTHONPATH": paths}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # until its end
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.lost: list[float] = []  # when machines were lost
        started = self._next()
        self.pid, self.folder = int(started["pid"]), Path(started["folder"])
        time.sleep(SETTLED)

    def helpers(self) -> float:
        """MB of the processes that the parent keeps besides the agents, such as srun's."""
        found = [each for each in psutil.Process(self.pid).children(recursive=True) if AGENT not in each.cmdline()]
        return sum(each.memory_info().rss for each in found) / 2**20

    def lose(self, place: Place, count: int, chance: random.Random) -> None:
        self.lost.append(time.time())
        place.lose(self.folder, count, chance)

    def measured(self) -> dict[str, float]:
        """Its measures, after its end, with ``left``: how many agents have outlived it."""
        found = self._next()
        self._process.wait(MOST)
        for file in (self._process.stdout, self._errors):
            file.close()  # type: ignore[union-attr]
        if self.lost:
            found["notice"] = found["noticed"] - self.lost[0]
        return {**found, "left": len(agents(self.folder))}

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        self._errors.seek(0)
        raise SystemExit(self._errors.read()[-3000:] or f"exit code {self._process.wait()}")


def row(place: Place, machines: int) -> str:
    """A row of the table: a run without loss, and one with."""
    run = Run(place, machines, SECONDS)
    helpers = run.helpers()
    calm = run.measured()
    run = Run(place, machines, SECONDS)
    run.lose(place, 1, random.Random(machines))
    lost = run.measured()
    cells = [f"{machines}", f"{calm['start']:.1f}", f"{calm['end']:.1f}", f"{calm['cpu']:.1%}", f"{calm['memory']:.0f}"]
    cells += [f"{calm['threads']:.0f}", f"{calm['messages']:.0f}", f"{helpers:.0f}"]
    cells += [
        f"{lost['notice']:.2f}",
        f"{lost['ended']:.1f}",
        f"{lost['back']:.1f}",
        f"{calm['left'] + lost['left']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def storm(place: Place, machines: int, waves: int, every: float) -> str:
    """A sentence about a run that loses machines ``waves`` times, ``every`` this many seconds."""
    count, chance = max(1, round(LOST * machines)), random.Random(0)
    run = Run(place, machines, 1.25 * every)  # of which no attempt completes between two waves
    for _ in range(waves):
        run.lose(place, count, chance)
        time.sleep(every)
    found = run.measured()
    parent = f"{found['cpu']:.1%} of a core, {found['memory']:.0f} MB, {found['threads']:.0f} threads"
    return (
        f"{machines} machines, {waves} times {count} lost, every {every:g} s: complete after {found['seconds']:.0f} s\n"
        f"{found['attempts']:.0f} attempts, the slowest restart took {found['back']:.1f} s; parent: {parent}\n"
        f"{found['left']:.0f} agents left"
    )


def on(engine: str, machines: int, act: Callable[[Place], str]) -> None:
    """Print what ``act`` returns for this many machines of an engine."""
    with tempfile.TemporaryDirectory() as folder, ENGINES[engine](machines, Path(folder)) as place:
        print(act(place), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="processes")
    parser.add_argument("--machines", type=int, nargs="+", default=MACHINES)
    parser.add_argument("--storm", type=int, default=0, metavar="WAVES", help=f"only this: {LOST:.0%} lost each time")
    parser.add_argument("--every", type=float, default=6.0, metavar="SECONDS", help="between two waves of a storm")
    given = parser.parse_args()
    if given.storm:
        machines = given.machines[-1]
        on(given.engine, machines, lambda place: storm(place, machines, given.storm, given.every))
        return
    print(f"| {' | '.join((*HEAD, 'loss noticed, s', 'others ended, s', 'all back, s', 'agents left'))} |")
    print(f"|{'---|' * (len(HEAD) + 4)}")
    for machines in given.machines:
        on(given.engine, machines, lambda place, machines=machines: row(place, machines))  # type: ignore[misc]


if __name__ == "__main__":
    main()
