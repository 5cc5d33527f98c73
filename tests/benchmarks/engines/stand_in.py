"""Acts as a machine's rank within its agent, so that hundreds of machines fit on few cores."""

import time
from collections.abc import Mapping
from typing import Any

from manyheads.launchers.nodes.node_part import Here
from manyheads.launchers.nodes.wire import Message
from manyheads.runner.run.heartbeat import FINISHED, Heartbeat

KEPT = "BENCHMARK_SECONDS"  # the variable that tells how long to beat


def stand_in(order: Message, job: Here, environment: Mapping[str, str], **_: Any) -> None:
    """Join, beat ten times a second, and end."""
    beat = Heartbeat(job.heartbeat.path, rank=order["first"])
    beat.enter()
    until = time.monotonic() + float(environment[KEPT])
    while time.monotonic() < until:
        job.check_timeout()  # raises when the parent ends the run, or is gone
        beat.beat()
        time.sleep(0.1)
    beat.leave(FINISHED)
