"""Replays the calls of all ranks as NCCL runs them: each rank's in its order, each when its partners are there."""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from tests.parallel.nccl_rules.calls import Call, Log, Step, read_log


class Rule(Enum):
    """What NCCL asks of a program."""

    RENDEZVOUS = "a send waits until its receiver has reached the receive, in each rank's order, whatever the tags"
    ORDER = "all ranks of a group make the same collective calls in the same order"
    TENSORS = "all ranks of a call give tensors of the same shapes and dtypes"
    SERIAL = "messages are serialized with everything else in their group"
    COMMUNICATORS = "ranks that share two groups make the calls of both in one order"
    CONTIGUOUS = "tensors are dense and contiguous"


class NCCLRuleBroken(AssertionError):
    """Calls that end under Gloo, and not, or with wrong numbers, under NCCL. ``rule``: the one that they break."""

    def __init__(self, rule: Rule, heads: Sequence[tuple[int, Call | None]]):
        lines = [f"  rank {rank}: {call or 'has made all of its calls'}" for rank, call in heads]
        super().__init__("\n".join([f"NCCL's rule is that {rule.value}. Here:", *lines]))
        self.rule = rule


def check_calls(folder: Path, ranks: int) -> int:
    """Replay what RecordedCalls wrote to ``calls_<rank>`` in ``folder``, and return the number of calls.

    Raises NCCLRuleBroken.
    """
    logs = [read_log(folder / f"calls_{rank}") for rank in range(ranks)]
    replay(logs)
    return sum(len(log.steps) for log in logs)


def replay(logs: Sequence[Log]) -> None:
    """Raises NCCLRuleBroken if the ranks' calls break a rule; ``logs``: of all ranks, by rank."""
    ranks = Heads(logs)
    while any(ranks.advance(rank) for rank in range(len(logs))):
        pass
    ranks.check_all_done()


class Heads:
    """The steps that ranks have reached. ``left``: what is still to be done of each rank's step."""

    def __init__(self, logs: Sequence[Log]):
        self._logs, self._at = logs, [-1] * len(logs)
        self.left: list[list[Call]] = [[] for _ in logs]
        for rank in range(len(logs)):
            self._next(rank)

    def advance(self, rank: int) -> bool:
        """Do what can be done of a rank's step with its partners; return whether that was anything."""
        moved = False
        while self.left[rank] and (
            self._message(rank) if self.left[rank][0].partner is not None else self._collective(rank)
        ):
            moved = True
        return moved

    def _next(self, rank: int) -> None:
        self._at[rank] += 1
        steps = self._logs[rank].steps
        step: Step = steps[self._at[rank]] if self._at[rank] < len(steps) else ()
        self.left[rank] = [*step]
        if any(not call.is_packed for call in step):
            raise NCCLRuleBroken(Rule.CONTIGUOUS, [(rank, call) for call in step if not call.is_packed])

    def _message(self, rank: int) -> bool:
        """Exchange a message of this rank's batch whose other end has been reached."""
        for call in self.left[rank]:
            assert call.partner is not None
            other = next((end for end in self.left[call.partner] if _is_other_end(end, call, rank)), None)
            if other is None:
                continue
            both = [(rank, call), (call.partner, other)]
            if other.tensors != call.tensors:
                raise NCCLRuleBroken(Rule.TENSORS, both)
            if other.options != call.options:
                raise NCCLRuleBroken(Rule.RENDEZVOUS, both)
            for end, done in both:
                self.left[end].remove(done)
                if not self.left[end]:
                    self._next(end)
            return True
        return False

    def _collective(self, rank: int) -> bool:
        call = self.left[rank][0]
        heads = [(member, self._head(member)) for member in call.ranks]
        if any(head is None or head.group != call.group or head.partner is not None for _, head in heads):
            return False
        if len({(head.name, head.options) for _, head in heads if head}) > 1:
            raise NCCLRuleBroken(Rule.ORDER, heads)
        if len({head.tensors for _, head in heads if head}) > 1 and not _may_differ(call):
            raise NCCLRuleBroken(Rule.TENSORS, heads)
        for member in call.ranks:
            self._next(member)
        return True

    def _head(self, rank: int) -> Call | None:
        return self.left[rank][0] if self.left[rank] else None

    def check_all_done(self) -> None:
        """Raises NCCLRuleBroken, with ranks that wait for each other, if a rank still waits."""
        stuck = [rank for rank, left in enumerate(self.left) if left]
        for first in stuck:
            chain = [first]
            while (last := self._awaited(chain[-1])) not in chain:
                chain.append(last)
                if not self.left[last]:
                    break
            ring = chain[chain.index(last) :] if self.left[last] else chain[-2:]
            if self.left[last] or self._logs[last].has_ended:  # else that rank has failed, which is another matter
                raise NCCLRuleBroken(
                    self._broken([self._head(rank) for rank in ring]), [(r, self._head(r)) for r in ring]
                )

    def _awaited(self, rank: int) -> int:
        """A rank for which this one waits."""
        head = self.left[rank][0]
        if head.partner is not None:
            return head.partner
        calls = {member: self._head(member) for member in head.ranks}
        return next(
            member
            for member, call in calls.items()
            if call is None or call.group != head.group or call.partner is not None
        )

    @staticmethod
    def _broken(ring: Sequence[Call | None]) -> Rule:
        calls = [call for call in ring if call is not None]
        if len({call.group for call in calls}) > 1:
            return Rule.COMMUNICATORS
        are_messages = {call.partner is not None for call in calls}
        if len(are_messages) > 1:
            return Rule.SERIAL
        return Rule.RENDEZVOUS if are_messages == {True} else Rule.ORDER


def _is_other_end(end: Call, call: Call, rank: int) -> bool:
    return end.partner == rank and end.group == call.group and {end.name, call.name} == {"send", "recv"}


def _may_differ(call: Call) -> bool:
    """Whether one rank alone gives or gets the tensors of all: its list is longer."""
    return call.name in ("gather", "scatter")
