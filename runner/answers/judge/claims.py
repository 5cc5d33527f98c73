"""The claims of a judgement: a pure function of its ledger, so that anyone can recompute them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.terms import Aim
from manyheads.runner.answers.measure.hypotheses import CLIP
from manyheads.runner.answers.measure.rounds import scale_of
from manyheads.runner.answers.measure.rows import CHANGE, COMPLETED, FAILED, FLOOR, INTERRUPTED, ROUND, RunRow

KEEP, DISCARD, UNDECIDED, REFUSED = "keep", "discard", "undecided", "refused"


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
    complete = [(attempt[0], attempt[1]) for _, attempt in sorted(attempts.items()) if attempt.keys() == {0, 1}]
    return [Pair(second, first) if first.arm == CHANGE else Pair(first, second) for first, second in complete]


def differences(rounds: Sequence[Pair], aim: Aim, *, scale: float) -> list[float]:
    """The gain of the change in each round. An arm that failed alone loses the round by CLIP times the ``scale``."""
    return [pair.difference(aim, lost=CLIP * scale) for pair in rounds]


@dataclass(frozen=True)
class Effect:
    """The effect of the change on one aim, as the rounds show it.

    Gains are in the metric's unit; for seconds, they are logarithms of base's divided by the change's. Greater is
    better.
    """

    on: Annotated[str, "the aim: speed, a metric, or seconds to a target"]
    scale: Annotated[float, "the noise floor: by how much base typically differs from itself"]
    floor: Annotated[tuple[float, ...], "gain of base over base, by round"]
    differences: Annotated[tuple[float, ...], "gain of the change over base, by round"]
    low: Annotated[float | None, "lower end of the gain's interval; null while it is unbounded"]
    high: Annotated[float | None, "upper end; null while it is unbounded"]

    @property
    def is_worse(self) -> bool:
        """Whether the entire interval is below 0."""
        return self.high is not None and self.high < 0


@dataclass(frozen=True)
class Claims:
    """The verdict of a judgement, and the numbers that it follows from."""

    verdict: Annotated[str, "keep, discard, undecided or refused"]
    reasons: Annotated[tuple[str, ...], "why it was refused, or what failed"] = ()
    numerics: Annotated[str | None, "whether both arms compute the same; null if that was not compared"] = None
    largest: Annotated[float | None, "largest relative difference over the compared steps"] = None
    exact: Annotated[float | None, "largest relative difference in double precision; null if not compared"] = None
    effects: Annotated[tuple[Effect, ...], "one for each aim"] = ()
    lost: Annotated[tuple[int, int], "how many rounds base alone failed in, and how many the change"] = (0, 0)
    interrupted: Annotated[int, "runs that never ended, whose rounds were repeated"] = 0

    def to_json(self) -> Mapping[str, Any]:
        """The claims as plain values, as judgement.jsonl and --json have them."""
        plain: Mapping[str, Any] = json.loads(json.dumps(asdict(self)))  # tuples as lists
        return plain


def claims_of(question: Question, rows: Sequence[RunRow]) -> Claims:
    """The claims that follow from the rows."""
    if reasons := question.refusals(rows):
        return Claims(REFUSED, reasons)
    compared, rounds = question.comparison(rows), pairs(rows, ROUND)
    numerics, exact = compared.numerics, compared.exact
    claims = Claims(
        UNDECIDED,
        numerics=None if numerics is None else numerics.name,
        largest=None if numerics is None else numerics.biggest,
        exact=None if exact is None else exact.biggest,
        lost=(sum(pair.base.state == FAILED for pair in rounds), sum(pair.change.state == FAILED for pair in rounds)),
        interrupted=sum(row.state == INTERRUPTED for row in rows),
    )
    if failure := compared.failure:
        return replace(claims, verdict=DISCARD, reasons=(failure,))
    if not pairs(rows, FLOOR):
        return claims
    effects = tuple(_effect(question, aim, rows) for aim in question.aims)
    if len(rounds) >= rounds_needed(question) and not any(gain for effect in effects for gain in effect.differences):
        return replace(
            claims, verdict=DISCARD, reasons=("it changes nothing: all rounds of both arms came out the same",)
        )
    return replace(claims, verdict=verdict(effects, least=least_gain(question)), effects=effects)


def _effect(question: Question, aim: Aim, rows: Sequence[RunRow]) -> Effect:
    from manyheads.runner.answers.measure.sequential import TESTS, intervals  # imports numpy, which takes long

    floor = differences(pairs(rows, FLOOR), aim, scale=0)
    scale = scale_of(floor)
    gains = differences(pairs(rows, ROUND), aim, scale=scale)
    looks = intervals(TESTS[question.test], gains, scale=scale, alpha=question.alpha_each)
    low, high = looks[-1] if looks else (-math.inf, math.inf)
    return Effect(
        aim.text,
        scale,
        tuple(floor),
        tuple(gains),
        low if math.isfinite(low) else None,
        high if math.isfinite(high) else None,
    )


def verdict(effects: Sequence[Effect], *, least: float) -> str:
    """The verdict: a change is kept if it is better in the first aim and worse in none.

    ``least``: the smallest gain worth having in the first aim.
    """
    first = effects[0]
    low = -math.inf if first.low is None else first.low
    high = math.inf if first.high is None else first.high
    if high < least or high <= 0 or any(effect.is_worse for effect in effects):
        return DISCARD
    return KEEP if low > 0 else UNDECIDED


def least_gain(question: Question) -> float:
    """The question's ``least`` in the unit of the differences: for seconds, a difference of logarithms."""
    return -math.log1p(-question.least) if question.aims[0].is_relative else question.least


def rounds_needed(question: Question) -> int:
    """The smallest number of rounds after which the question can be decided."""
    from manyheads.runner.answers.measure.sequential import TESTS, least_rounds  # imports numpy

    return least_rounds(TESTS[question.test], question.alpha_each)
