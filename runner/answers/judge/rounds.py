"""The rounds of a judgement: who runs first in each and with which seed, and the gain of the change in each.

Both are drawn: a recorded random number, the draw, decides them.
"""

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.runner.answers.judge.rows import CHANGE, COMPLETED, FAILED, ROUND, TRIAL, RunRow
from manyheads.runner.answers.judge.sequential import CLIP, spread
from manyheads.runner.answers.judge.terms import Aim

SHORTEST, LONGEST = 0.2, 5.0  # seconds of timed updates per arm
SMALLEST = 1e-12  # scale, if all runs of base gave the same value


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
    found = []
    for number in sorted(attempts):
        if attempts[number].keys() == {0, 1}:
            first, second = attempts[number][0], attempts[number][1]
            found.append(Pair(second, first) if first.arm == CHANGE else Pair(first, second))
    return found


def differences(found: Sequence[Pair], aim: Aim, *, scale: float) -> list[float]:
    """The gain of the change in each round. An arm that failed alone loses the round by CLIP times the ``scale``."""
    return [pair.difference(aim, lost=CLIP * scale) for pair in found]


def scale_of(floor: Sequence[float]) -> float:
    """The scale of the test: the spread of the differences between runs of base."""
    return max(spread(floor), SMALLEST)


def trial_of(rows: Sequence[RunRow]) -> RunRow:
    """The trial run; of several, the shortest, since the machine may have delayed the others."""
    return min((row for row in rows if row.purpose == TRIAL and row.state == COMPLETED), key=lambda row: row.duration)


def updates_of(rows: Sequence[RunRow]) -> int:
    """The number of updates to time, from the trial run: they should take about as long as starting a run does.

    Fewer would save little time, more would cost more than further rounds. At least SHORTEST and at most LONGEST
    seconds.
    """
    trial = trial_of(rows)
    seconds = trial.findings["seconds"]
    startup = trial.duration - seconds
    return max(1, math.ceil(min(max(startup, SHORTEST), LONGEST) * trial.findings["updates"] / seconds))


SEEDS = 2**31


def new_draw() -> str:
    """A random number, as hexadecimal digits. Drawn before anything is measured."""
    return secrets.token_hex(16)


def is_base_first(draw: str, purpose: str, number: int) -> bool:
    """Whether base runs first in a round: its toss of a coin."""
    return not _number(draw, "coin", purpose, number) % 2


def seed(draw: str, purpose: str, number: int, place: int) -> int:
    """The seed of the run in a round with this place: 0 for the first, 1 for the second.

    Seeds belong to places, not to arms, so the coin also decides which arm gets which seed.
    """
    return _number(draw, "seed", purpose, number, place) % SEEDS


def _number(draw: str, *about: object) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(map(str, (draw, *about))).encode()).digest()[:8], "big")
