"""The parent's side of a run on several machines: gathers them, assigns and watches ranks, restarts if configured."""

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.launchers.environment import exported
from manyheads.launchers.job import Job
from manyheads.launchers.node_settings import NodeSettings
from manyheads.launchers.nodes.gathering import Gathering, gathering
from manyheads.launchers.nodes.node_ranks import NodeRanks
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.shared_folder import clear_attempt, storage_token
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.processes import supervise
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed
from manyheads.runner.provenance.node_records import note_nodes
from manyheads.runner.run import scratch
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

END_SECONDS = 8.0  # for the agents to end their ranks and confirm it


@dataclass(frozen=True)
class NodeShare:
    """One machine's part of a run."""

    node: Node
    ranks: range


Order = Callable[[Job, list[NodeShare], int], Message]
Gather = Callable[[NodeSettings, RunFolder], AbstractContextManager[Gathering]]


class ScaleUp(Exception):
    """The ranks have stopped so that the run can continue on more machines."""


def run_on_nodes(
    settings: NodeSettings, job: Job, order: Order, *, stall_timeout: float, gather: Gather = gathering
) -> None:
    """Run the job on the machines that the settings name. Raises as ``launchers.processes.supervise`` does.

    ``order``: returns what a machine has to start; ``gather``: finds the machines. Leaves no process on any of them.
    """
    restarts: list[dict[str, Any]] = []
    failures = 0
    with gather(settings, job.folder) as machines:
        while True:
            shares = assign_ranks(machines.gather(job), settings, job)
            record_shares(job, shares)
            try:
                attempt(machines, shares, job, order, number=len(restarts), stall_timeout=stall_timeout)
                return
            except RunFailed as error:
                if failures >= settings.max_restarts or job.signals or error.failure.kind is Kind.TIMED_OUT:
                    raise
                failures += 1
                cause = str(error)
            except ScaleUp:
                cause = "more machines joined"
            restarts.append({"time": time.time(), "cause": cause, "from": [str(share.node) for share in shares]})
            job.added["restarts"] = restarts
            print(f"restarting from the last checkpoint: {cause}", flush=True)
            clear_attempt(job, settings.start_timeout)


def attempt(
    machines: Gathering, shares: list[NodeShare], job: Job, order: Order, *, number: int, stall_timeout: float
) -> None:
    """Start all ranks and watch them until they end. Raises ScaleUp if they stopped to let more machines join."""
    count = shares[-1].ranks.stop
    job = replace(job, ranks=count, heartbeat=Heartbeat(None, ranks=count))
    silence = machines.settings.silence
    ranks = Attempt(machines, job, {part.node: part.ranks for part in shares}, attempt=number, silence=silence)
    job = replace(job, name_of=ranks.name_of, reports=ranks.reports)
    with storage_token(job) as common:
        first = shares[0].node
        meeting = {"MASTER_ADDR": first.address, "MASTER_PORT": str(first.port)}
        environment = {**exported(job.environment), **meeting}
        for index, share in enumerate(shares):
            start = starting(job, share, environment, common, number=number)
            share.node.send({**start, **order(job, shares, index)})
        try:
            supervise(ranks, job, stall_timeout=stall_timeout)
        except Interrupted:
            if ranks.is_growing and not job.signals:
                raise ScaleUp from None
            raise
        except RunFailed as error:
            unheard = ranks.silent()
            ranks.end(END_SECONDS)  # the agents' last messages may be the only evidence
            raise RunFailed(explained(error.failure, ranks, unheard)) from error
        finally:
            machines.forget(ranks.end(END_SECONDS))
            scratch.sweep(Path(scratch.base()))


def starting(job: Job, share: NodeShare, environment: dict[str, str], common: Message, *, number: int) -> Message:
    """The order that a machine needs to start its ranks in attempt ``number``, apart from the command.

    ``common``: from ``storage_token``.
    """
    base = f"{scratch.base()}/manyheads-{common['token']}-"
    part = {"first": share.ranks.start, "count": len(share.ranks), "ranks": job.ranks, "name": share.node.name}
    location = {"folder": str(job.folder.path), "scratch": base, "address": share.node.address}
    return {"do": "start", "attempt": number, "environment": environment, **common, **part, **location}


class Attempt(NodeRanks):
    """The ranks of an elastic run: stops them in an orderly way when further machines could join."""

    def __init__(self, machines: Gathering, job: Job, shares: dict[Node, range], **options: Any):
        super().__init__(machines.meeting, job, shares, **options)
        self._machines = machines
        self.is_growing = False

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        if not self.is_growing and self._machines.could_grow(self._job, len(self.shares)):
            self.is_growing = True
            self._job.heartbeat.stop_signal = signal.SIGTERM


def assign_ranks(nodes: list[Node], settings: NodeSettings, job: Job) -> list[NodeShare]:
    """Assign ranks to machines: the largest number that divides the batch. Raises ConfigurationError if none does."""
    possible = settings.per_node * len(nodes)
    count = next((n for n in range(possible, 0, -1) if job.fits(n)), 0)
    if not count:
        assert job.run is not None  # otherwise any number fits
        run = job.run
        raise ConfigurationError.at(
            "data.batch_size",
            run.data.batch_size,
            f" with trainer.grad_accumulation={run.trainer.grad_accumulation} and parallel={run.parallel.name} fits no "
            f"number of ranks up to {possible}. Add machines, or change one of these keys.",
        )
    if count < possible:
        print(f"{count} of {possible} ranks: the global batch can be divided among that many", flush=True)
    shares = []
    for first, node in zip(range(0, count, settings.per_node), nodes, strict=False):
        shares.append(NodeShare(node, range(first, min(count, first + settings.per_node))))
    return shares


def record_shares(job: Job, shares: list[NodeShare]) -> None:
    """Record for result.json and provenance.json where the ranks run."""
    note_nodes(job.folder, [{"node": share.node.name, **share.node.described["machine"]} for share in shares])
    job.added["nodes"] = [{"node": str(share.node), "ranks": len(share.ranks)} for share in shares]
    job.added["world_size"] = shares[-1].ranks.stop


def explained(failure: Failure, ranks: NodeRanks, unheard: list[Node]) -> Failure:
    """The failure, with the machine on which it happened or whose loss caused it."""
    if failure.kind is Kind.NODE_LOST or (unheard and failure.rank is None):
        return failure
    if unheard:  # the other nodes' ranks waited for theirs
        names = " and ".join(map(str, unheard))
        message = f"the run's parent no longer hears from it. Its ranks' peers reported: {failure.message}"
        return Failure(Kind.NODE_LOST, node=names, message=message)
    reported = ranks.reported()
    if failure.kind is Kind.PROCESS_DIED and failure.exit_code is None and reported is not None:
        failure = replace(reported, node=None)
    node = ranks.node_of(failure.rank)
    return failure if node is None else replace(failure, node=str(node))
