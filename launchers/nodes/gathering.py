"""Gathers a run's machines: starts their agents or waits for them, and notices those that leave and return.

They meet at a rendezvous, which is opened here, and are released when the run ends.
"""

import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.launchers.job import Job
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes.joining import other_config, refused
from manyheads.launchers.nodes.rendezvous import Meeting, Node
from manyheads.launchers.nodes.starting import Started, agent_arguments, start_here, start_there
from manyheads.launchers.nodes.wire import Message, new_key, own_key
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed, complain
from manyheads.runner.machine import addresses
from manyheads.runner.run.files import remove
from manyheads.runner.run.leaving import KEY
from manyheads.runner.run.run_folder import RunFolder

RETRY_SECONDS = 5.0  # before an agent is restarted on a machine that was lost
SETTLE_SECONDS = 3.0  # wait for further machines once the minimum has connected


class Gathering:
    """The connected machines in rank order: as listed; else the parent's own first, the others by name."""

    def __init__(self, settings: NodeSettings, folder: RunFolder, meeting: Meeting, key: Path | None, here: set[str]):
        """``here``: those listed hosts that name the parent's own machine.

        ``key``: the file with the run's key; None for the user's own.
        """
        self.settings, self.meeting = settings, meeting
        self._folder, self._key, self._here = folder, key, here
        self._names = settings.hosts or list(here)
        self._started: dict[str, Started] = {}
        self._again: dict[str, float] = {}
        self._nodes: list[Node] = []
        self._has_run = self.is_lenient = False  # lenient: machines are only examined
        self._digests: dict[str, str] = {}  # of the values of the run's config

    def gather(self, job: Job) -> list[Node]:
        """Wait until enough machines have connected. Raises RunFailed, ConfigurationError or Interrupted."""
        self._digests = {} if job.run is None else job.run.digests()
        deadline = time.monotonic() + self.settings.start_timeout
        enough = None
        while True:
            self._call(is_first=not self._has_run)
            self._admit(0.1)
            if job.signals:
                raise Interrupted(job.signals[0])
            count, now = len(self._nodes), time.monotonic()
            if count >= self.settings.fewest and enough is None:
                enough = now
            waits = SETTLE_SECONDS if not self._has_run or self.settings.fewest == self.settings.most else 0
            if count >= self.settings.most or (enough is not None and now - enough > waits):
                self._has_run = True
                return list(self._nodes)
            if now > deadline:
                raise RunFailed(self._too_few())

    def present(self, seconds: float) -> tuple[list[Node], bool]:
        """The machines that have connected within ``seconds``, and whether more may follow."""
        self._call(is_first=True)
        self._admit(seconds)
        names = {node.name for node in self._nodes}
        return list(self._nodes), any(name not in names and self.why(name) is None for name in self._names)

    def ask(self, node: Node, message: Message, seconds: float = 10.0) -> Message | None:
        """A machine's answer to ``message``; None if none comes within ``seconds``."""
        node.send(message)
        with suppress(queue.Empty):
            while True:
                who, answer = self.meeting.inbox.get(timeout=seconds)
                if who is node:
                    return answer
        return None

    def could_grow(self, job: Job, count: int) -> bool:
        """Whether a machine has connected that a run on ``count`` machines could use in addition."""
        if count >= self.settings.most:
            self._admit(0.0)
            return False
        now, then = self.settings.per_node * count, self.settings.per_node * len(self.connected())
        return any(job.fits(ranks) for ranks in range(now + 1, then + 1))

    def connected(self) -> list[Node]:
        """The machines that are connected now; starts an agent again on each machine that has none."""
        self._call(is_first=False)
        self._admit(0.0)
        return list(self._nodes)

    def forget(self, nodes: list[Node]) -> None:
        """Drop machines that did not end their ranks when asked to."""
        for node in nodes:
            node.channel.close()
            node.is_connected = False
        self._admit(0.0)

    def close(self, reason: BaseException | None) -> None:
        """Release all machines. ``reason``: why the run did not complete; None if it did."""
        for node in self._nodes:
            node.send(
                {"do": "leave", "code": getattr(reason, "exit_code", int(reason is not None)), "why": str(reason)}
            )
        self.meeting.close()
        deadline = time.monotonic() + 5
        for started in self._started.values():
            started.close(max(0.1, deadline - time.monotonic()))
        if self._key is not None:
            remove(self._key)

    def _call(self, *, is_first: bool) -> None:
        """Start an agent on each machine that has none; try again later after a failure."""
        present, now = {node.name for node in self._nodes}, time.monotonic()
        for index, name in enumerate(self._names):
            started = self._started.get(name)
            if name in present or now < self._again.get(name, 0.0):
                continue
            if started is not None and (why := started.failure()) is None:
                continue
            if started is not None and self.is_lenient:
                continue
            if started is not None and is_first and self.settings.fewest == self.settings.most:
                raise RunFailed(Failure(Kind.NODE_LOST, node=name, message=f"no agent could be started there: {why}"))
            if started is not None:
                started.close(0.1)
            self._again[name] = now + RETRY_SECONDS
            self._started[name] = self._start(name, index)

    def _start(self, name: str, index: int) -> Started:
        log, meeting = self._folder.logs / f"node_{index}.log", self.meeting
        endpoint = {"address": meeting.address, "port": meeting.port, "key": self._key}
        arguments = agent_arguments(self.settings, name=name, **endpoint)  # type: ignore[arg-type]
        if name in self._here:
            return start_here(arguments, name, log)
        return start_there(arguments, name, log, shell=self.settings.shell, speaks=index == 0)

    def _admit(self, seconds: float) -> None:
        """Add the machines that have connected and remove those that have disconnected or been silent for too long."""
        heard = time.monotonic() - self.settings.silence
        self._nodes = [node for node in self._nodes if node.is_connected and node.heard > heard]
        while (node := self.meeting.next_arrival(seconds)) is not None:
            seconds = 0.0
            why = None if self.is_lenient else refused(node) or other_config(node, self._digests)
            if why is not None:
                node.send({"do": "refuse", "why": why})
                node.channel.close()
                if node.name in self._names:
                    raise ConfigurationError(why)
                complain(why)
                continue
            if any(other.name == node.name for other in self._nodes):
                node.name = f"{node.name}/{node.address}"
            self._nodes.append(node)
        order = {name: index for index, name in enumerate(self._names)}
        self._nodes.sort(key=lambda node: (order.get(node.name, len(order)), node.name))

    def _too_few(self) -> Failure:
        there = ", ".join(map(str, self._nodes)) or "none"
        lacking = [name for name in self._names if name not in {node.name for node in self._nodes}]
        whose = f" Nothing was heard from {', '.join(lacking)}." if lacking else ""
        reasons = [f" {name}: {why}." for name in lacking if (why := self.why(name))]
        return Failure(
            Kind.NODE_LOST,
            message=f"{len(self._nodes)} of {self.settings.fewest} machines have connected to "
            f"{addresses.bracketed(self.meeting.address)}:{self.meeting.port} within "
            f"launcher.start_timeout={self.settings.start_timeout:g} seconds: "
            f"{there}.{whose}{''.join(reasons)}",
        )

    def why(self, name: str) -> str | None:
        """Why a listed machine will not connect; None while it still may."""
        started = self._started.get(name)
        return started.failure() if started else None


@contextmanager
def gathering(settings: NodeSettings, folder: RunFolder) -> Iterator[Gathering]:
    """The machines of a run, released when it ends."""
    if settings.rendezvous is not None:
        host, port = addresses.parse_endpoint("launcher.rendezvous", settings.rendezvous)
        address = addresses.own_address(settings.interface) if settings.interface else addresses.meeting_place(host)
        machines = Gathering(settings, folder, Meeting(address, port, own_key()), None, {socket.gethostname()})
    else:
        machines = called_machines(settings, folder)
    with let_go(machines):
        yield machines


@contextmanager
def let_go(machines: Gathering) -> Iterator[None]:
    """Release the machines on exit, and tell them why if the run did not complete."""
    reason: BaseException | None = None
    try:
        yield
    except BaseException as error:
        reason = error
        raise
    finally:
        with suppress(OSError):
            machines.close(reason)


def meet(address: str, folder: RunFolder) -> tuple[Meeting, Path]:
    """Listen on a free port of this machine; return the rendezvous and the file with the run's new key."""
    key = folder.logs / KEY
    remove(key)  # left by an attempt that was killed
    return Meeting(address, 0, new_key(key)), key


def called_machines(settings: NodeSettings, folder: RunFolder) -> Gathering:
    """Gather the machines that the settings list, by starting an agent on each."""
    places = settings.addresses or {name: addresses.resolved("launcher.hosts", name) for name in settings.hosts}
    here = set() if settings.addresses else {name for name, address in places.items() if addresses.is_own(address)}
    others = [address for name, address in places.items() if name not in here]
    meeting_address = addresses.own_address(settings.interface, towards=others[0] if others else None)
    return Gathering(settings, folder, *meet(meeting_address, folder), here)
