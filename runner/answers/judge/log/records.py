"""How many records noise alone sets, and which gains of a log it does not explain.

If no change does anything, the values of a search are exchangeable: the i-th is the best so far with probability 1 / i,
independently of the others (Rényi 1962), so of n changes a search that keeps each best value keeps
1/2 + 1/3 + ... + 1/(n + 1) on average.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated

from manyheads.runner.answers.judge.log.read_log import LoggedTrial

TAIL = 0.05  # of each side of the interval
NEGLIGIBLE = 1e-15
FEW = 5  # values between two records that are one gain, at most


@dataclass(frozen=True)
class LoggedGain:
    """Kept changes soon after each other, each with the best value so far."""

    lines: Annotated[list[int], "where the log has them, counted from 1"]
    about: Annotated[str, "what was tried last"]
    value: Annotated[float, "the value of the last"]
    before: Annotated[float, "the best value before them"]
    after: Annotated[int, "the other values from the first of them to the next gain"]
    better: Annotated[int, "how many of those were better than the best value before"]
    probability: Annotated[float, "of at least as many, if none of the changes did anything"]


def chances(sections: Sequence[int]) -> list[float]:
    """The probability of each number of records, if no change does anything. sections: the changes in each."""
    distribution = [1.0]
    for count in sections:
        for rank in range(2, count + 2):
            stays = [value * (1 - 1 / rank) for value in distribution]
            distribution = [a + b / rank for a, b in zip([*stays, 0.0], [0.0, *distribution], strict=True)]
            while distribution[-1] < NEGLIGIBLE:
                distribution.pop()
    return distribution


def quantile(distribution: Sequence[float], level: float) -> int:
    """The least number that is not exceeded with this probability."""
    total = 0.0
    for number, chance in enumerate(distribution):
        total += chance
        if total >= level:
            return number
    return len(distribution) - 1


def gains(trials: Sequence[LoggedTrial], *, lower_is_better: bool) -> Iterator[LoggedGain]:
    """The kept records among trials with one baseline, the first with a value; those close together are one gain."""
    sign = -1 if lower_is_better else 1
    valued = [trial for trial in trials if trial.value is not None]
    scores = [sign * trial.value for trial in valued if trial.value is not None]
    highest = accumulate(scores, max, initial=-math.inf)
    records = [number for number, (score, past) in enumerate(zip(scores, highest, strict=False)) if score > past]
    first = 1
    for end, (last, following) in enumerate(pairwise([*records, len(scores)]), 1):
        if end <= first or (following - last <= FEW and following < len(scores)):
            continue
        previous, row = records[first - 1], records[first:end]
        first = end
        if kept := [valued[number] for number in row if valued[number].is_kept]:
            level, others = scores[previous], [number for number in range(row[0], following) if number not in row]
            better = sum(scores[number] > level for number in others)
            chance = at_least(better, range(row[0] - previous, following - previous), {n - previous for n in row})
            lines = [trial.line for trial in kept]
            yield LoggedGain(lines, kept[-1].about, sign * scores[last], sign * level, len(others), better, chance)


def at_least(number: int, places: Sequence[int], records: Collection[int]) -> float:
    """The probability that at least ``number`` values are better than an earlier record, if values are exchangeable.

    places: of the values, counted from that record, which has place 0. records: those of them that are records.

    The ranks of values among those before them are independent (Rényi 1962). So a value that is no record is equally
    likely to fall below each of the values before it, of which the better ones so far are above that record.
    """
    chances = [1.0]  # of each number of better values
    for position in places:
        if position not in records:
            above = sum(record < position for record in records)
            rises = [chance * (above + better) / position for better, chance in enumerate(chances)]
            stays = [chance - rise for chance, rise in zip(chances, rises, strict=True)]
            chances = [stay + rise for stay, rise in zip([*stays, 0.0], [0.0, *rises], strict=True)]
    return min(math.fsum(chances[number:]), 1.0)


def unexplained(every: Sequence[LoggedGain], error_rate: float) -> list[LoggedGain]:
    """The gains that noise does not explain: one too many among them with at most this probability (Holm 1979)."""
    ordered = sorted(every, key=lambda gain: gain.probability)
    for rank, gain in enumerate(ordered):
        if gain.probability > error_rate / (len(ordered) - rank):
            return ordered[:rank]
    return ordered
