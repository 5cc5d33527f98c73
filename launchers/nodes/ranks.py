"""The ranks of a run on all its nodes, in the words of ``manyheads.launchers.processes.Ranks``."""

import queue
import time
from collections.abc import Mapping

from manyheads.launchers.base import Job
from manyheads.launchers.nodes.meeting import ALIVE_SECONDS, Meeting, Node
from manyheads.launchers.nodes.wire import Message
from manyheads.runner.run.errors import ConfigurationError, RunFailed
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.heartbeat import FAILED
from manyheads.runner.run.reports import Report

SETTLE_SECONDS = 1.5  # within which all nodes have told what has just happened to their ranks


class NodeRanks:
    """``shares``: the ranks of each node. ``silence``: seconds without a word after which a node is lost."""

    patience = 0.0

    def __init__(self, meeting: Meeting, job: Job, shares: dict[Node, range], *, attempt: int, silence: float):
        self.shares, self.attempt, self.silence = shares, attempt, silence
        self._meeting, self._job = meeting, job
        self._codes: dict[int, int | None] = {}
        self._ended: dict[Node, Message] = {}
        self._reports: dict[int, Report] = {}
        self._has_failed = False
        self.engine_is_alone = False  # one program on the first machine starts the ranks of all

    def roots(self) -> list[int]:
        return []  # their agents end them

    def running(self) -> bool:
        return len(self._ended) < len(self.shares)

    def wait(self, seconds: float) -> None:
        """Take in what the nodes say. Raises RunFailed when one is lost."""
        self._hear(seconds)
        if not self._has_failed and self._some_rank_failed():
            self._has_failed = True  # which of several was first depends on all of them
            self._hear(SETTLE_SECONDS, whole=True)
        self._meeting.stop = self.attempt, self._job.heartbeat.stop_signal
        for node in self.shares:
            self._refuse_lost(node, self.silence)
        if not self._has_failed and (failure := self.said()) is not None:  # no rank's: those were not even started
            raise RunFailed(failure)

    def exit_codes(self) -> Mapping[int, int | None]:
        return self._codes

    def reports(self) -> list[Report]:
        """How ranks failed, as their machines say."""
        return list(self._reports.values())

    def tell_where(self) -> None:
        self.tell({"do": "where"})

    def tell(self, message: Message) -> None:
        """Say it to all nodes that are still at it."""
        for node in self.shares:
            if node not in self._ended:
                node.send(message)

    def node_of(self, rank: int | None) -> Node | None:
        """Where a rank is."""
        return next((node for node, ranks in self.shares.items() if rank is not None and rank in ranks), None)

    def name_of(self, rank: int) -> str:
        """A rank with its machine, for a sentence."""
        return f"rank {rank} on {self.node_of(rank)}"

    def end(self, seconds: float) -> list[Node]:
        """Have all nodes end their ranks; returns those that have not said within this time that they did."""
        self.tell({"do": "end", "attempt": self.attempt})
        deadline = time.monotonic() + seconds
        while self.running() and time.monotonic() < deadline:
            self._hear(0.2)
            gone = self.silent()
            if all(node in self._ended or not node.is_connected or node in gone for node in self.shares):
                break
        return [node for node in self.shares if node not in self._ended]

    def silent(self) -> list[Node]:
        """Machines of which some words are missing: their peers' ranks may fail before they count as lost."""
        most = min(self.silence, 5 * ALIVE_SECONDS)
        return [n for n in self.shares if n not in self._ended and time.monotonic() - n.heard > most]

    def said(self) -> Failure | None:
        """What an agent said of its ranks' end, for where no rank could write it down."""
        for node, message in self._ended.items():
            if failure := Failure.from_json(message["failure"]):
                return Failure(**{**failure.to_json(), "node": str(node)})
        return None

    def _some_rank_failed(self) -> bool:
        return bool(self._codes) or any(self._job.heartbeat.state(rank) == FAILED for rank in self._job.watched)

    def _hear(self, seconds: float, *, whole: bool = False) -> None:
        """Take in what comes within so many seconds, or what is there when the first has come."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._take(*self._meeting.inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                return
            if not whole:
                deadline = time.monotonic()

    def _take(self, node: Node, message: Message | None) -> None:
        if node not in self.shares or message is None:
            return
        own = self.shares[node]
        for rank, words in message.get("words", {}).items():
            if int(rank) in own and message.get("attempt", self.attempt) == self.attempt:
                self._job.heartbeat.write(int(rank), words)
        for report in message.get("reports", []):
            if report.get("rank") in own and message.get("attempt", self.attempt) == self.attempt:
                self._reports.setdefault(report["rank"], report)
        if message["is"] == "status":
            self._codes |= {rank: self._codes.get(rank) for rank in message["gone"] if rank in own}
        elif message["is"] in ("errand", "errand done"):
            self._pass_on(node, message)
        elif message["is"] == "ended" and message["attempt"] == self.attempt:
            self._ended[node] = message
            node.port = message["port"]
            self._codes |= {int(rank): code for rank, code in message["codes"].items()}
            failure = Failure.from_json(message["failure"])
            if failure is not None and failure.rank is not None and failure.type == "ProcessDied":
                self._codes.setdefault(failure.rank, failure.exit_code)  # with what had started it, and so unsaid
            if node is next(iter(self.shares)) and self.engine_is_alone:
                self.tell({"do": "end", "attempt": self.attempt})  # the others have done what it asked for
            if message["mistake"]:
                raise ConfigurationError(message["mistake"])

    def _pass_on(self, node: Node, message: Message) -> None:
        """From the machine where one program has started all ranks to the one that it names, or back."""
        first = next(iter(self.shares))
        if message["is"] == "errand done":
            first.send({"do": "errand done", "id": message["id"], "code": message["code"]})
            return
        named = [each for each in self.shares if message["host"] in (each.name, each.address, each.host)]
        if named and node is first:
            named[0].send({"do": "errand", "id": message["id"], "command": message["command"]})
        else:
            node.send({"do": "errand done", "id": message["id"], "code": 255})

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
    """The failure of a run that has lost a node."""
    return Failure(type="NodeLost", node=str(node), message=f"{how}.")
