"""The parent's side of a run on Ray: a child process that communicates with Ray, and the machines that Ray provides.

Ray's client starts threads, sets signal handlers and writes to the terminal, none of which may happen in the parent.
However the child ends, Ray then ends everything that it has started for it.
"""

import json
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from manyheads.launchers.agent_program import GrowingOutput
from manyheads.launchers.job import Job
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes.gathering import Gathering, let_go, meet
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.starting import agent_arguments, command_there
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed
from manyheads.runner.machine import addresses
from manyheads.runner.machine.process import in_background
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.program import PIPE, Program, stop
from manyheads.runner.run.run_folder import RunFolder

DRIVER = "manyheads.launchers.ray.ray_driver"
END_SECONDS = 15.0


class RayClient(AbstractContextManager["RayClient"]):
    """A connection to Ray, through a child process. ``asked``: the bundles, as ``ray_driver`` reads them.

    Raises ConfigurationError if there is no such cluster, and RunFailed if the child process is killed.
    ``address``: this machine's in the cluster; ``is_placed``: whether all bundles have their devices; ``wanted``: if
    not, a clause that says which are missing; ``failure``: why the run cannot start.
    """

    def __init__(self, asked: dict[str, Any], *, log: Path):
        with open(log, "ab", opener=no_link) as file:
            # Ray's workers search the driver's working directory for modules first.
            program = Program([sys.executable, "-m", DRIVER], folder="/")
            self._process = program.start(stdin=PIPE, stdout=PIPE, stderr=file)
        self._exited = f"the process that communicates with Ray has exited; see {log}"
        self.is_placed, self.wanted = False, "no answer yet"
        self.failure: str | None = None
        self._listener: threading.Thread | None = None
        self._say(asked)
        met = self._hear()
        if met is None:
            self.close()
            raise RunFailed(Failure(Kind.UNREACHABLE, message=self._exited))
        if "failure" in met:
            self.close()
            raise ConfigurationError(met["failure"])
        self.address: str = met["address"]
        self._listener = threading.Thread(target=self._listen, name="ray client", daemon=True)
        self._listener.start()

    def start(self, commands: list[str]) -> None:
        """Place the bundles, and keep a command running in each."""
        self._say(commands)

    def close(self) -> None:
        """Release everything to Ray and end the child process."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        stop(self._process, seconds=END_SECONDS, signum=signal.SIGKILL)
        if self._listener is not None:
            self._listener.join(timeout=5)
        self._process.stdout.close()  # type: ignore[union-attr]

    def __exit__(self, *_: object) -> None:
        self.close()

    def _say(self, value: Any) -> None:
        with suppress(OSError):  # the listener notices that the process is gone
            self._process.stdin.write(f"{json.dumps(value)}\n".encode())  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _hear(self) -> dict[str, Any] | None:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        return json.loads(line) if line else None

    def _listen(self) -> None:
        while (message := self._hear()) is not None:
            self.is_placed = message.get("is_placed", self.is_placed)
            self.wanted = message.get("wanted", self.wanted)
            self.failure = message.get("failure", self.failure)
        self.failure = self.failure or self._exited


LOOK_SECONDS = 0.2


def show(output: GrowingOutput, done: threading.Event) -> None:
    """Print what rank 0 writes, until ``done`` is set, and then the rest."""
    is_last = False
    with suppress(OSError):  # the run is elsewhere and continues; the command fails when it prints its end
        while not is_last:
            is_last = done.wait(LOOK_SECONDS)
            output.pass_on()


POLL_SECONDS = 0.1


class Displaced(Exception):
    """Ray has lost a bundle while the run waited for its agent to connect."""


class Placed(Gathering):
    """Machines whose agents Ray starts, and restarts. ``patience``: seconds to wait for room; None for no limit."""

    def __init__(self, client: RayClient, patience: float | None, *arguments: Any):
        super().__init__(*arguments)
        self._client, self._patience = client, patience

    def gather(self, job: Job) -> list[Node]:
        while True:
            self._wait_for_room(job)
            with suppress(Displaced):
                return super().gather(job)

    def why(self, name: str) -> str | None:
        return self._client.failure

    def _wait_for_room(self, job: Job) -> None:
        began, told = time.monotonic(), False
        while not self._client.is_placed:
            self._refuse_failed()
            if job.signals:
                raise Interrupted(job.signals[0])
            job.check_timeout()
            waited = time.monotonic() - began
            if self._patience is not None and waited > self._patience:
                limit = f"launcher.placement_timeout={self._patience:g} seconds"
                raise RunFailed(Failure(Kind.NOT_STARTED, message=f"{self._client.wanted} (waited for {limit})."))
            if not told and waited > 2:
                print(f"waiting for Ray: {self._client.wanted}", flush=True)
                told = True
            time.sleep(POLL_SECONDS)

    def _call(self, *, is_first: bool) -> None:
        self._refuse_failed()
        if not self._client.is_placed:
            raise Displaced

    def _refuse_failed(self) -> None:
        if self._client.failure is not None:
            raise RunFailed(Failure(Kind.UNREACHABLE, message=self._client.failure))


def _command(settings: NodeSettings, name: str, endpoint: dict[str, Any], output: Path) -> str:
    arguments = [*agent_arguments(settings, name=name, **endpoint), "--beside-parent"]
    out, log = (shlex.quote(str(path)) for path in (output, output.with_suffix(".log")))
    return f'echo "$(date) {name} on $(hostname)" >>{log}; {command_there(arguments)} >>{out} 2>>{log}'


@contextmanager
def placed(
    settings: NodeSettings, folder: RunFolder, *, asked: dict[str, Any], patience: float | None
) -> Iterator[Gathering]:
    """A context with the machines of a run on Ray; they are released at its end."""
    with RayClient(asked, log=folder.logs / "ray.log") as client:
        address = addresses.own_address(settings.interface) if settings.interface else client.address
        meeting, key = meet(address, folder)
        machines = Placed(client, patience, settings, folder, meeting, key, set())
        with let_go(machines):
            endpoint = {"address": address, "port": meeting.port, "key": key}
            outputs = [folder.logs / f"node_{number}.out" for number in range(settings.most)]
            client.start(
                [_command(settings, name, endpoint, out) for name, out in zip(settings.hosts, outputs, strict=True)]
            )
            with in_background(partial(show, GrowingOutput(outputs[0])), name="output"):
                yield machines
