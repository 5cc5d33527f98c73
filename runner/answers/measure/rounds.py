"""The rounds in which configurations run: what a recorded random number, the draw, decides, and how much is timed."""

import hashlib
import math
import secrets
from collections.abc import Sequence

from manyheads.runner.answers.measure.hypotheses import spread
from manyheads.runner.answers.measure.rows import COMPLETED, TRIAL, RunRow

SHORTEST, LONGEST = 0.2, 5.0  # seconds of timed updates per run
SMALLEST = 1e-12  # scale, if all runs of base gave the same value
SEEDS = 2**31
# How far a measured time and the file system's may differ: in seconds, plus a fraction of it. In 2,500 runs on two
# cores they differed by up to 81 ms at loads up to 14, and by at most 4 ms on an idle machine; the median was 0.4 ms at
# every load.
SLACK, RELATIVE_SLACK = 0.15, 0.02


def scale_of(floor: Sequence[float]) -> float:
    """The scale of a test: the spread of the differences between runs of base."""
    return max(spread(floor), SMALLEST)


def clocks_agree(seconds: float, marked: float | None) -> bool:
    """Whether a measured time is the one between two marks, by the file system's clock; None if a mark is missing."""
    return marked is not None and abs(seconds - marked) <= SLACK + RELATIVE_SLACK * seconds


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


def new_draw() -> str:
    """A random number, as hexadecimal digits. Drawn before anything is measured."""
    return secrets.token_hex(16)


def is_base_first(draw: str, purpose: str, number: int) -> bool:
    """Whether base runs first in a round: its toss of a coin."""
    return not _number(draw, "coin", purpose, number) % 2


def seed(draw: str, purpose: str, number: int, turn: int) -> int:
    """The seed of the run in a round with this turn: 0 for the first, 1 for the second.

    Seeds belong to turns, not to arms, so the coin also decides which arm gets which seed.
    """
    return _number(draw, "seed", purpose, number, turn) % SEEDS


def _number(draw: str, *about: object) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(map(str, (draw, *about))).encode()).digest()[:8], "big")
