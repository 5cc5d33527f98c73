"""The replicas of a run on several machines: if a machine is lost, so are its replicas, and the others continue."""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from manyheads.launchers.job import Job
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes.gathering import Gathering, gathering
from manyheads.launchers.nodes.node_ranks import NodeRanks
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.run_on_nodes import (
    END_SECONDS,
    NodeShare,
    assign_ranks,
    explained,
    exported,
    record_shares,
    starting,
)
from manyheads.launchers.nodes.shared_folder import storage_token
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.processes import supervise
from manyheads.launchers.torchft import RESTARTED, note_restart
from manyheads.launchers.torchft.lighthouse import Lighthouse
from manyheads.launchers.torchft.replica_processes import LAST_SECONDS
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.run import scratch
from manyheads.runner.run.heartbeat import FAILED, FINISHED, RUNNING, STARTING

HEALING = ".replicas"  # the folder, in the run's, of states for replicas that have come back
SETTLE_SECONDS = 5.0  # within which the agent of a lost machine has killed its replicas


def run_on_machines(
    settings: NodeSettings, job: Job, order: Message, *, heartbeat_timeout: float, stall_timeout: float
) -> None:
    """Run the replicas on the machines that the settings name. Raises as ``launchers.processes.supervise`` does.

    ``order``: each machine's order, without the addresses of the others. Leaves no process on any of them.
    """
    with gathering(settings, job.folder) as gathered, storage_token(job) as common:
        shares = assign_ranks(gathered.gather(job), settings, job)
        address = gathered.meeting.address
        if ":" in address:
            raise ConfigurationError.at(
                "launcher", "torchft", f": torchft 0.2.0 cannot use {address}. Use IPv4 addresses."
            )
        record_shares(job, shares)
        healing = job.folder.path / HEALING
        healing.mkdir(mode=0o700, exist_ok=True)
        lighthouse = Lighthouse(job, host=address, heartbeat_timeout=heartbeat_timeout)
        order = {**order, "replicas": lighthouse.variables(str(healing))}
        environment = exported(job.environment)

        def start(share: NodeShare) -> None:
            share.node.send({**starting(job, share, environment, common, number=0), **order})

        machines = ReplicaMachines(gathered, job, lighthouse, start, width=order["limits"]["width"])
        try:
            for share in shares:
                machines.begin(share.node, share.ranks)
            job = replace(job, name_of=machines.name_of, reports=machines.reports)
            supervise(machines, job, stall_timeout=stall_timeout)
        except RunFailed as error:
            raise RunFailed(explained(error.failure, machines, [])) from error
        finally:
            gathered.forget(machines.end(END_SECONDS))
            scratch.sweep(Path(scratch.base()))
            shutil.rmtree(healing, ignore_errors=True)


class ReplicaMachines(NodeRanks):
    """The replicas on all machines, of which each may be lost and return.

    ``start``: tells a machine to start its replicas; ``width``: the number of ranks of a replica.
    """

    def __init__(
        self, gathered: Gathering, job: Job, lighthouse: Lighthouse, start: Callable[[NodeShare], None], *, width: int
    ):
        super().__init__(gathered.meeting, job, {}, attempt=0, silence=gathered.settings.silence)
        self._gathered, self._lighthouse, self._start = gathered, lighthouse, start
        self._free: dict[range, float] = {}  # ranks of lost machines, and when none of them can run there any more
        self._width, per_node = width, gathered.settings.per_node
        self._unused = [range(first, first + per_node) for first in range(0, job.ranks, per_node)]
        self._over: float | None = None

    def begin(self, node: Node, ranks: range) -> None:
        """Start these replicas on a machine."""
        self._unused.remove(ranks)
        self.shares[node] = ranks
        self._start(NodeShare(node, ranks))

    def roots(self) -> list[int]:
        return [self._lighthouse.process.pid] if self._lighthouse.process.pid else []

    def running(self) -> bool:
        """Whether there is still something to wait for; once rank 0 has written the results, only ``LAST_SECONDS``."""
        if self._job.heartbeat.state(0) == FINISHED:
            self._over = self._over or time.monotonic()
        is_over = self._over is not None and time.monotonic() - self._over > LAST_SECONDS
        return not is_over and super().running()

    def wait(self, seconds: float) -> None:
        """Process the machines' messages for up to ``seconds``; start missing replicas on machines that join."""
        self._lighthouse.keep()
        super().wait(seconds)
        if self._over is None and not self._job.heartbeat.stop_signal:
            self._welcome()

    def _take(self, node: Node, message: Message | None) -> None:
        if message is None or node not in self.shares:
            return
        if message["is"] == "restart":
            self._note(message["cause"])
            return
        if message["is"] == "status":  # its agent restarts dead replicas
            message = {**message, "gone": [], "reports": []}
            for words in message["words"].values():
                words[1] = RUNNING if words[1] == FAILED else words[1]
                words[3] = 0  # collectives: comparable only within a replica
        super()._take(node, message)

    def _refuse_lost(self, node: Node, silence: float) -> None:
        try:
            super()._refuse_lost(node, silence)
        except RunFailed as error:
            self._lose(node, error.failure)

    def _lose(self, node: Node, failure: Failure) -> None:
        ranks, is_silent = self.shares.pop(node), node.is_connected
        self._ended.pop(node, None)
        self._free[ranks] = time.monotonic() + SETTLE_SECONDS + (self.silence if is_silent else 0.0)
        for rank in ranks:
            self._job.heartbeat.write(rank, [self._job.heartbeat.read(rank)[0], STARTING, 0, 0])
        self._gathered.forget([node])
        self._note(f"machine {node} was lost: {failure.message.removesuffix('.')}", "the others continue")
        if not self.shares:
            raise RunFailed(failure)

    def _welcome(self) -> None:
        """Start missing replicas on machines that have joined or returned."""
        now = time.monotonic()
        for ranks in [ranks for ranks, since in self._free.items() if now > since]:
            del self._free[ranks]
            self._unused.append(ranks)
        for node in self._gathered.connected():
            if node not in self.shares and self._unused:
                ranks = min(self._unused, key=lambda part: part.start)
                count, first = len(ranks) // self._width, ranks.start // self._width
                replicas = f"{count} replica{'' if count == 1 else 's'}, numbered from {first}"
                print(f"machine {node} joins with {replicas}", flush=True)
                self.begin(node, ranks)

    def _note(self, cause: str, what: str = RESTARTED) -> None:
        most = self._gathered.settings.max_restarts
        if note_restart(self._job, cause, what) > most:
            message = f"{cause}, after launcher.max_restarts={most} restarts."
            raise RunFailed(Failure(Kind.NODE_LOST, message=message))
