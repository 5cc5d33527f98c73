"""The rounds of a judgement, and how much better the change was in each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.runner.judge.aims import Aim
from manyheads.runner.judge.rows import CHANGE, COMPLETED, FAILED, ROUND, TRIAL, Row
from manyheads.runner.judge.sequential import CLIP, spread

SHORTEST, LONGEST = 0.2, 5.0  # seconds of timed updates per arm
SMALLEST = 1e-12  # scale, where all rounds of base came out the same


@dataclass(frozen=True)
class Pair:
    """A round in which both runs ended. Of two runs of base, the first counts as base."""

    base: Row
    change: Row

    @property
    def in_order(self) -> list[Row]:
        """Both runs, the one that ran first before the other."""
        return sorted((self.base, self.change), key=lambda row: row.place)

    def difference(self, aim: Aim, *, lost: float = math.nan) -> float:
        """How much better the change was. ``lost``: what counts if only one of both failed."""
        failed = [row.state == FAILED for row in (self.base, self.change)]
        if any(failed):
            return lost * (failed[0] - failed[1])
        return aim.value(self.change.findings) - aim.value(self.base.findings)


def pairs(rows: Sequence[Row], purpose: str) -> list[Pair]:
    """The complete rounds with this purpose, in order. Of a round that was interrupted, the attempt that ended."""
    attempts: dict[int, dict[int, Row]] = {}
    ended = (COMPLETED, FAILED) if purpose == ROUND else (COMPLETED,)
    for row in rows:
        if row.purpose != purpose:
            continue
        if row.place == 0:
            attempts[row.round] = {}
        if row.state in ended and row.round in attempts:
            attempts[row.round][row.place] = row
    found = []
    for number in sorted(attempts):
        if attempts[number].keys() == {0, 1}:
            first, second = attempts[number][0], attempts[number][1]
            found.append(Pair(second, first) if first.arm == CHANGE else Pair(first, second))
    return found


def differences(found: Sequence[Pair], aim: Aim, *, scale: float) -> list[float]:
    """By round how much better the change was; a run that failed lost its round by CLIP times the ``scale``."""
    return [pair.difference(aim, lost=CLIP * scale) for pair in found]


def scale_of(floor: Sequence[float]) -> float:
    """The spread of equal arms."""
    return max(spread(floor), SMALLEST)


def updates_of(rows: Sequence[Row]) -> int:
    """The number of timed updates that follows from the trial run: they take about as long as starting a run does.

    Fewer would save little, more would cost more than further rounds; within SHORTEST and LONGEST.
    """
    trial = next(row for row in rows if row.purpose == TRIAL and row.state == COMPLETED)
    seconds = trial.findings["seconds"]
    startup = (trial.ended or trial.began) - trial.began - seconds
    return max(1, math.ceil(min(max(startup, SHORTEST), LONGEST) * trial.findings["updates"] / seconds))
