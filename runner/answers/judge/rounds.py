"""The rounds of a judgement, and the gain of the change in each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.runner.answers.judge.terms import Aim
from manyheads.runner.answers.measure.hypotheses import CLIP
from manyheads.runner.answers.measure.rows import CHANGE, COMPLETED, FAILED, ROUND, RunRow


@dataclass(frozen=True)
class Pair:
    """The two runs of a complete round. In a round of base against base, the second is called ``change``."""

    base: RunRow
    change: RunRow

    @property
    def in_order(self) -> list[RunRow]:
        """Both runs, in the order in which they ran."""
        return sorted((self.base, self.change), key=lambda row: row.place)

    def difference(self, aim: Aim, *, lost: float = math.nan) -> float:
        """The gain of the change. ``lost``: what the loser loses by if only one of both runs failed."""
        failed = [row.state == FAILED for row in (self.base, self.change)]
        if any(failed):
            return lost * (failed[0] - failed[1])
        return aim.value(self.change.findings) - aim.value(self.base.findings)


def pairs(rows: Sequence[RunRow], purpose: str) -> list[Pair]:
    """The complete rounds with this purpose, in order. Of a round that was repeated, the complete attempt."""
    attempts: dict[int, dict[int, RunRow]] = {}
    ended = (COMPLETED, FAILED) if purpose == ROUND else (COMPLETED,)
    for row in rows:
        if row.purpose != purpose:
            continue
        if row.place == 0:
            attempts[row.round] = {}
        if row.state in ended and row.round in attempts:
            attempts[row.round][row.place] = row
    complete = []
    for number in sorted(attempts):
        if attempts[number].keys() == {0, 1}:
            first, second = attempts[number][0], attempts[number][1]
            complete.append(Pair(second, first) if first.arm == CHANGE else Pair(first, second))
    return complete


def differences(rounds: Sequence[Pair], aim: Aim, *, scale: float) -> list[float]:
    """The gain of the change in each round. An arm that failed alone loses the round by CLIP times the ``scale``."""
    return [pair.difference(aim, lost=CLIP * scale) for pair in rounds]
