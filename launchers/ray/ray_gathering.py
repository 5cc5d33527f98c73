"""The machines of a run on Ray, in the parent: those where Ray has found room, once it has found some for all."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from manyheads.launchers.launcher import Job
from manyheads.launchers.nodes.gathering import Gathering
from manyheads.launchers.nodes.node_settings import NodeSettings
from manyheads.launchers.nodes.open_rendezvous import let_go, meet
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.starting import agent_arguments, command_there
from manyheads.launchers.ray.ray_client import RayClient, RayOutput
from manyheads.runner.errors import Failure, Interrupted, Kind, RunFailed
from manyheads.runner.machine import addresses
from manyheads.runner.machine.process import in_background
from manyheads.runner.run.run_folder import RunFolder

POLL_SECONDS = 0.1


class Displaced(Exception):
    """Ray has lost a bundle while its agent was awaited."""


class Placed(Gathering):
    """Machines whose agents Ray starts, and restarts. ``patience``: seconds to wait for room; None for no limit."""

    def __init__(self, gang: RayClient, patience: float | None, *arguments: Any):
        super().__init__(*arguments)
        self._gang, self._patience = gang, patience

    def gather(self, job: Job) -> list[Node]:
        while True:
            self._wait_for_room(job)
            with suppress(Displaced):
                return super().gather(job)

    def why(self, name: str) -> str | None:
        return self._gang.failure

    def _wait_for_room(self, job: Job) -> None:
        began, told = time.monotonic(), False
        while not self._gang.is_placed:
            self._refuse_failed()
            if job.signals:
                raise Interrupted(job.signals[0])
            job.check_timeout()
            waited = time.monotonic() - began
            if self._patience is not None and waited > self._patience:
                limit = f"launcher.placement_timeout={self._patience:g} seconds"
                raise RunFailed(Failure(Kind.NOT_STARTED, message=f"{self._gang.wanted} (waited for {limit})."))
            if not told and waited > 2:
                print(f"waiting for Ray: {self._gang.wanted}", flush=True)
                told = True
            time.sleep(POLL_SECONDS)

    def _call(self, *, is_first: bool) -> None:
        self._refuse_failed()
        if not self._gang.is_placed:
            raise Displaced

    def _refuse_failed(self) -> None:
        if self._gang.failure is not None:
            raise RunFailed(Failure(Kind.UNREACHABLE, message=self._gang.failure))


def _command(settings: NodeSettings, name: str, place: dict[str, Any], output: Path) -> str:
    arguments = [*agent_arguments(settings, name=name, **place), "--beside-parent"]
    out, log = (shlex.quote(str(path)) for path in (output, output.with_suffix(".log")))
    return f'echo "$(date) {name} on $(hostname)" >>{log}; {command_there(arguments)} >>{out} 2>>{log}'


@contextmanager
def placed(
    settings: NodeSettings, folder: RunFolder, *, asked: dict[str, Any], patience: float | None
) -> Iterator[Gathering]:
    """The machines of a run on Ray, until it ends."""
    with RayClient(asked, log=folder.logs / "ray.log") as gang:
        own = addresses.own_address(settings.interface) if settings.interface else gang.address
        meeting, key = meet(own, folder)
        machines = Placed(gang, patience, settings, folder, meeting, key, set())
        with let_go(machines):
            place = {"address": own, "port": meeting.port, "key": key}
            outputs = [folder.logs / f"node_{number}.out" for number in range(settings.most)]
            gang.start(
                [_command(settings, name, place, out) for name, out in zip(settings.hosts, outputs, strict=True)]
            )
            with in_background(RayOutput(outputs[0]).show, name="output"):
                yield machines
