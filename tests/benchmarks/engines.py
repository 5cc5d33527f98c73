"""What many machines cost the parent of a run, and how soon it notices the loss of one.

``python -m tests.benchmarks.engines [--machines 8 32 128]``

Each machine is one of the project's agents, a process on this machine that is started by the launcher's remote shell
(``sh -c``). In place of a rank, a stand-in within the agent joins, beats and ends, so that hundreds fit on few cores:
what is measured is the machinery around ranks. For each number of machines: a run without loss, and one in which an
agent is killed. With ``--storm``, 5 % of the machines are killed again and again. The parent is a process of its own,
without torch, like that of a run.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from manyheads.launchers.launcher import Job
from manyheads.launchers.nodes import wire
from manyheads.launchers.nodes.node_part import Here
from manyheads.launchers.nodes.node_settings import NodeSettings
from manyheads.launchers.nodes.run_on_nodes import NodeShare, run_on_nodes
from manyheads.launchers.nodes.wire import Message
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.run.heartbeat import FINISHED, Heartbeat
from manyheads.runner.run.run_folder import RunFolder

MACHINES = (8, 32, 128)
SECONDS = 10.0  # for which the stand-ins beat
LOST = 0.05  # of the machines, in each wave of a storm
WAVE = 6.0  # seconds between waves, less than a run takes
ROOT = Path(__file__).parents[2]
KEPT = "BENCHMARK_SECONDS"  # the variable that tells the stand-ins how long to beat


def stand_in(order: Message, job: Here, environment: Mapping[str, str], **_: Any) -> None:
    """Act as this machine's rank: join, beat ten times a second, and end."""
    beat = Heartbeat(job.heartbeat.path, rank=order["first"])
    beat.enter()
    until = time.monotonic() + float(environment[KEPT])
    while time.monotonic() < until:
        job.check_timeout()  # raises when the parent ends the run, or is gone
        beat.beat()
        time.sleep(0.1)
    beat.leave(FINISHED)


class Parent:
    """A run on so many machines, in this process."""

    def __init__(self, folder: Path, machines: int, seconds: float):
        names = {f"machine{number}": "127.0.0.1" for number in range(machines)}
        self.settings = NodeSettings([*names], None, machines, machines, 1, "sh -c", None, 30.0, 300.0, 100, names)
        line, origin = resolve_origin(CommandLine.of(["parallel=ddp", "trainer.device=cpu"], None))
        run = RunFolder(folder)
        run.logs.mkdir(parents=True)
        run.write_config(run_config(line.overrides, line, origin).written)
        self.job = Job(run, machines, {KEPT: f"{seconds:g}"}, Heartbeat(None, ranks=machines), [])
        self.started: list[float] = []  # of each attempt
        self.threads = self.messages = 0

    def run(self) -> dict[str, float]:
        """Seconds until all machines have their orders, and from the last rank's end to the run's; and what it cost."""
        receive = wire.Channel.receive

        def counted(channel: wire.Channel) -> Message:
            self.messages += 1
            return receive(channel)

        wire.Channel.receive = counted  # type: ignore[method-assign]
        began, used = time.time(), time.process_time()
        run_on_nodes(self.settings, self.job, self._order, stall_timeout=60.0)
        ended = time.time()
        restarts = [each["time"] for each in self.job.added.get("restarts", [])]
        seconds = float(self.job.environment[KEPT])
        return {
            "start": self.started[0] - began,
            "end": ended - self.started[-1] - seconds,
            "cpu": (time.process_time() - used) / (ended - began),
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "threads": self.threads,
            "messages": self.messages / (ended - began),
            "attempts": len(self.started),
            "back": max((new - cause for new, cause in zip(self.started[1:], restarts, strict=True)), default=0.0),
            "noticed": restarts[0] if restarts else 0.0,
        }

    def _order(self, job: Job, shares: list[NodeShare], index: int) -> Message:
        if index == len(shares) - 1:
            self.started.append(time.time())
            self.threads = max(self.threads, threading.active_count())
        about = {"command": [], "run_part": "tests.benchmarks.engines.stand_in", "starts_others": False}
        return {**about, "meets_by_name": None}


def kill(count: int, seed: int) -> float:
    """Kill so many agents of this process; returns when."""
    agents = [each for each in psutil.Process().children() if "node_agent" in " ".join(each.cmdline())]
    for each in random.Random(seed).sample(agents, min(count, len(agents))):
        each.kill()
    return time.time()


def losing(machines: int, waves: int, found: dict[str, float], parent: Parent) -> None:
    """Kill one agent, or in a storm a part of all agents in each wave, once the ranks have begun."""
    while not parent.started:
        time.sleep(0.05)
    time.sleep(2.0)
    for wave in range(waves):
        at = kill(max(1, round(LOST * machines)) if waves > 1 else 1, seed=wave)
        found.setdefault("killed", at)
        time.sleep(WAVE)


def one(machines: int, waves: int, seconds: float) -> None:
    """Print the measures of one run as JSON. ``waves``: of losses."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        parent = Parent(Path(folder) / "run", machines, seconds)
        if waves:
            threading.Thread(target=losing, args=(machines, waves, found, parent), daemon=True).start()
        with open(os.devnull, "w") as nowhere:
            told, sys.stdout = sys.stdout, nowhere
            try:
                measured = parent.run()
            finally:
                sys.stdout = told
    if "killed" in found:
        measured["notice"] = measured["noticed"] - found["killed"]
    print(json.dumps(measured))


def measured_apart(machines: int, waves: int, seconds: float) -> dict[str, float]:
    """The measures of a run whose parent is a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.engines", "--one", str(machines), str(waves), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # agents inherit it, and import the stand-in
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, nargs="+", default=MACHINES)
    parser.add_argument("--storm", type=int, default=0, metavar="WAVES", help=f"{LOST:.0%} lost every {WAVE:g} s")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        machines, waves, seconds = given.one
        one(int(machines), int(waves), float(seconds))
        return
    print("| machines | start, s | end, s | parent's CPU | MB | threads | messages/s | loss noticed, s | all back, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for machines in given.machines:
        calm, lost = measured_apart(machines, 0, SECONDS), measured_apart(machines, 1, SECONDS)
        row = [f"{calm['start']:.1f}", f"{calm['end']:.1f}", f"{calm['cpu']:.1%}", f"{calm['memory']:.0f}"]
        row += [f"{calm['threads']:.0f}", f"{calm['messages']:.0f}", f"{lost['notice']:.2f}", f"{lost['back']:.1f}"]
        print(f"| {machines} | {' | '.join(row)} |", flush=True)
    if given.storm:
        machines = given.machines[-1]
        found = measured_apart(machines, given.storm, SECONDS)
        print(
            f"{given.storm} waves of losses among {machines} machines: {found['attempts']:.0f} attempts, then complete"
        )


if __name__ == "__main__":
    main()
