"""The ranks of a run on all its nodes, as the parent supervises them."""

import queue
import time
from collections.abc import Mapping
from dataclasses import replace

from manyheads.launchers.causes import error_of
from manyheads.launchers.job import Job
from manyheads.launchers.nodes.rendezvous import ALIVE_SECONDS, Meeting, Node
from manyheads.launchers.nodes.wire import Message
from manyheads.launchers.processes import Ranks
from manyheads.runner.errors import Failure, Kind, RunFailed
from manyheads.runner.run.heartbeat import FAILED, Report

SETTLE_SECONDS = 1.5  # within which all nodes have reported what just happened to their ranks


class NodeRanks(Ranks):
    """The ranks of one attempt at a run.

    ``shares``: the ranks of each node. ``silence``: seconds without a message after which a node counts as lost.
    """

    def __init__(self, meeting: Meeting, job: Job, shares: dict[Node, range], *, attempt: int, silence: float):
        super().__init__(job.heartbeat)
        self.shares, self.attempt, self.silence = shares, attempt, silence
        self._meeting, self._job = meeting, job
        self._codes: dict[int, int | None] = {}
        self._ended: dict[Node, Message] = {}
        self._reports: dict[int, Report] = {}
        self._has_failed = False

    def running(self) -> bool:
        return len(self._ended) < len(self.shares)

    def wait(self, seconds: float) -> None:
        """Process the nodes' messages for up to ``seconds``. Raises RunFailed when a node is lost."""
        self._hear(seconds)
        if not self._has_failed and self._some_rank_failed():
            self._has_failed = True  # all reports are needed to tell which was first
            self._hear(SETTLE_SECONDS, until_end=True)
        self._meeting.stop = self.attempt, self._job.heartbeat.stop_signal
        for node in list(self.shares):
            self._refuse_lost(node, self.silence)
        if not self._has_failed and (failure := self.reported()) is not None:  # an agent's, which started no rank
            raise RunFailed(failure)

    def exit_codes(self) -> Mapping[int, int | None]:
        return self._codes

    def reports(self) -> list[Report]:
        """The failures of ranks, as their machines report them."""
        return list(self._reports.values())

    def dump_stacks(self) -> None:
        self.tell({"do": "where"})

    def tell(self, message: Message) -> None:
        """Send a message to every node whose ranks have not ended."""
        for node in self.shares:
            if node not in self._ended:
                node.send(message)

    def node_of(self, rank: int | None) -> Node | None:
        """The node that runs a rank; None if there is none."""
        return next((node for node, ranks in self.shares.items() if rank is not None and rank in ranks), None)

    def name_of(self, rank: int) -> str:
        """A rank and its machine, as an error names them."""
        return f"rank {rank} on {self.node_of(rank)}"

    def end(self, seconds: float) -> list[Node]:
        """Make all nodes end their ranks; return the nodes that did not confirm it within ``seconds``."""
        self.tell({"do": "end", "attempt": self.attempt})
        deadline = time.monotonic() + seconds
        while self.running() and time.monotonic() < deadline:
            self._hear(0.2)
            gone = self.silent()
            if all(node in self._ended or not node.is_connected or node in gone for node in self.shares):
                break
        return [node for node in self.shares if node not in self._ended]

    def silent(self) -> list[Node]:
        """Machines whose messages are overdue: the ranks of others may fail before these count as lost."""
        most = min(self.silence, 5 * ALIVE_SECONDS)
        return [n for n in self.shares if n not in self._ended and time.monotonic() - n.heard > most]

    def reported(self) -> Failure | None:
        """The failure that an agent reported, in case no rank could write its own report; None if none did."""
        for node, message in self._ended.items():
            if failure := Failure.from_json(message["failure"]):
                return replace(failure, node=str(node))
        return None

    def _some_rank_failed(self) -> bool:
        return bool(self._codes) or any(self._job.heartbeat.state(rank) == FAILED for rank in self._job.watched)

    def _hear(self, seconds: float, *, until_end: bool = False) -> None:
        """Process messages for ``seconds`` if ``until_end``, else until the first batch has arrived."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._take(*self._meeting.inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                return
            if not until_end:
                deadline = time.monotonic()

    def _take(self, node: Node, message: Message | None) -> None:
        if node not in self.shares or message is None:
            return
        ranks = self.shares[node]
        for rank, words in message.get("words", {}).items():
            if int(rank) in ranks and message.get("attempt", self.attempt) == self.attempt:
                self._job.heartbeat.write(int(rank), words)
        for report in message.get("reports", []):
            if report.get("rank") in ranks and message.get("attempt", self.attempt) == self.attempt:
                self._reports.setdefault(report["rank"], report)
        if message["is"] == "status":
            self._codes |= {rank: self._codes.get(rank) for rank in message["gone"] if rank in ranks}
        elif message["is"] == "ended" and message["attempt"] == self.attempt:
            self._ended[node] = message
            node.port = message["port"]
            self._codes |= {int(rank): code for rank, code in message["codes"].items()}
            failure = Failure.from_json(message["failure"])
            if failure is not None and failure.rank is not None and failure.kind is Kind.PROCESS_DIED:
                self._codes.setdefault(failure.rank, failure.exit_code)  # what started it died too and reported no code
            if failure is not None and failure.kind is Kind.MISTAKE:
                raise error_of(failure)

    def _refuse_lost(self, node: Node, silence: float) -> None:
        if node in self._ended:
            return
        if not node.is_connected:
            raise RunFailed(lost(node, "its connection to the run's parent has ended: its agent or the node is gone"))
        if (quiet := time.monotonic() - node.heard) > silence:
            here = self._meeting.address
            how = f"it and the run's parent at {here} have not heard from each other for {quiet:.0f} seconds"
            raise RunFailed(lost(node, how))


def lost(node: Node, how: str) -> Failure:
    """The failure of a run that has lost a node. ``how``: a clause for the error."""
    return Failure(Kind.NODE_LOST, node=str(node), message=f"{how}.")
