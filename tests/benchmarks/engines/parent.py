"""The parent of a run on many machines: a process of its own without torch, like that of any run; it measures itself.

``python -m tests.benchmarks.engines.parent <what to run, as JSON>`` prints a line of JSON when the first attempt has
started, and one with the measures at the end.
"""

import json
import os
import re
import sys
import tempfile
import threading
import time
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes import wire
from manyheads.launchers.nodes.node_ranks import NodeRanks
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.run_on_nodes import NodeShare
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.wrappers.on_nodes import OnNodes
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.engines.stand_in import KEPT, stand_in


@dataclass
class Asked:
    """What to run. ``settings``: fields of NodeSettings in place of the launcher's own; ``seconds``: of each rank."""

    machines: int
    seconds: float
    overrides: list[str]
    settings: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))


class Parent:
    """A run in this process, by the launcher that the config names. ``out``: where its lines of JSON go."""

    def __init__(self, folder: Path, asked: Asked, out: TextIO):
        line, origin = resolve_origin(CommandLine.of(["parallel=ddp", "trainer.device=cpu", *asked.overrides], None))
        run = RunFolder(folder)
        run.logs.mkdir(parents=True)
        run.write_config(run_config(line.overrides, line, origin).written)
        option = RunConfig.read(run).launcher
        self.launcher: Launcher = option.kind(name=option.name, **option.arguments())
        if asked.settings:
            self.launcher.settings = NodeSettings(**asked.settings)
        count, self._seconds = asked.machines, asked.seconds
        self.job = Job(run, count, {KEPT: f"{asked.seconds:g}"}, Heartbeat(None, ranks=count), [])
        self.started: list[float] = []  # of each attempt
        self._ending: list[float] = []  # when the ranks of an attempt were to end, by themselves or because of a loss
        self._out, self._threads, self._messages = out, 0, 0

    def run(self) -> dict[str, float]:
        """Seconds until all machines have their orders, and from the last rank's end to the run's; and what it cost."""
        receive = wire.Channel.receive

        def counted(channel: wire.Channel) -> Message:
            self._messages += 1
            return receive(channel)

        end = NodeRanks.end

        def noted(ranks: NodeRanks, seconds: float) -> list[Node]:
            self._ending.append(time.time())
            return end(ranks, seconds)

        began, used = time.time(), time.process_time()
        with (
            patch.object(wire.Channel, "receive", counted),
            patch.object(NodeRanks, "end", noted),
            patch.object(self.launcher, "order", self._order),
        ):
            OnNodes(self.launcher).launch(self.job)
        ended = time.time()
        restarts = [each["time"] for each in self.job.added.get("restarts", [])]
        return {
            "start": self.started[0] - began,
            "end": ended - self.started[-1] - self._seconds,
            "noticed": self._ending[0],
            "ended": restarts[0] - self._ending[0] if restarts else 0.0,
            "seconds": ended - began,
            "cpu": (time.process_time() - used) / (ended - began),
            "memory": _peak_mb(),
            "threads": self._threads,
            "messages": self._messages / (ended - began),
            "attempts": len(self.started),
            "back": max((new - cause for new, cause in zip(self.started[1:], restarts, strict=True)), default=0.0),
        }

    def _order(self, job: Job, shares: list[NodeShare], index: int) -> Message:
        if index == len(shares) - 1:
            self.started.append(time.time())
            self._threads = max(self._threads, threading.active_count())
            if len(self.started) == 1:
                print(json.dumps({"pid": os.getpid(), "folder": str(job.folder)}), file=self._out, flush=True)
        part = f"{stand_in.__module__}.{stand_in.__name__}"
        return {"run_part": part}


def _peak_mb() -> float:
    """Of this process's memory. The system's own count begins before it has replaced the one that started it."""
    return int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def main() -> None:
    out, asked = sys.stdout, Asked(**json.loads(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        measured = Parent(Path(folder) / "run", asked, out).run()
    print(json.dumps(measured), file=out, flush=True)


if __name__ == "__main__":
    main()
