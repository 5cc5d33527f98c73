"""What follows from the rows of a judgement. A pure function of the ledger, so that anybody can compute it again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manyheads.runner.judge.arms import config_differences
from manyheads.runner.judge.numerics import DIFFERENT, class_of, unlike_facts
from manyheads.runner.judge.question import Question
from manyheads.runner.judge.rows import BASE, CHANGE, COMPLETED, FACTS, FAILED, FLOOR, ROUND, STEPS, Row
from manyheads.runner.judge.sequential import TESTS, Interval, intervals, least_rounds, spread

KEEP, DISCARD, UNDECIDED, REFUSED = "keep", "discard", "undecided", "refused"


@dataclass(frozen=True)
class Pair:
    """A complete round."""

    base: Row
    change: Row

    @property
    def difference(self) -> float:
        assert self.base.value is not None
        assert self.change.value is not None
        return self.change.value - self.base.value


@dataclass(frozen=True)
class Claims:
    """The verdict of a judgement, and the numbers that it follows from.

    ``reasons``: why it was refused or what failed; ``numerics``: the class; ``floor``, ``differences``: of rounds.

    ``scale``: of the noise floor; ``low``, ``high``: the interval, None while it is unbounded.
    """

    verdict: str
    reasons: tuple[str, ...] = ()
    numerics: str | None = None
    largest: float | None = None
    scale: float | None = None
    floor: tuple[float, ...] = ()
    differences: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None

    def to_json(self) -> Mapping[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def claims_of(question: Question, rows: Sequence[Row]) -> Claims:
    """The claims that follow from the rows."""
    if reasons := refusals(question, rows):
        return Claims(REFUSED, reasons)
    steps = next((row for row in rows if row.purpose == STEPS and row.arm == CHANGE and row.state == COMPLETED), None)
    numerics = class_of(steps.findings, question.tolerances) if steps else None
    known: Mapping[str, Any] = {
        "numerics": None if numerics is None else numerics.name,
        "largest": None if numerics is None else numerics.biggest,
    }
    if failure := _failure_of_change(rows):
        return Claims(DISCARD, (failure,), **known)
    floor = tuple(pair.difference for pair in pairs(rows, FLOOR))
    differences = tuple(pair.difference for pair in pairs(rows, ROUND))
    if not floor:
        return Claims(UNDECIDED, **known)
    scale = max(spread(floor), 1e-12)
    if len(differences) >= least_rounds(TESTS[question.test], question.alpha) and not any(differences):
        return Claims(DISCARD, ("it changes nothing: all rounds of both arms came out the same",), **known)
    found = intervals(TESTS[question.test], differences, scale=scale, alpha=question.alpha)
    low, high = found[-1] if found else Interval(-math.inf, math.inf)
    return Claims(
        verdict(low, high, least=least_gain(question)),
        scale=scale,
        floor=floor,
        differences=differences,
        low=low if math.isfinite(low) else None,
        high=high if math.isfinite(high) else None,
        **known,
    )


def verdict(low: float, high: float, *, least: float) -> str:
    """``least``: the smallest gain worth having."""
    if low > 0 and high >= least:
        return KEEP
    return DISCARD if high < least or high <= 0 else UNDECIDED


def least_gain(question: Question) -> float:
    """The question's ``least`` in the unit of the differences, which are logarithms for speed."""
    return -math.log1p(-question.least) if question.is_relative else question.least


def refusals(question: Question, rows: Sequence[Row]) -> tuple[str, ...]:
    """Why the arms can't be compared, in sentences, as far as the rows tell."""
    facts = {row.arm: row.findings for row in rows if row.purpose == FACTS and row.state == COMPLETED}
    found: list[str] = []
    if {BASE, CHANGE} <= facts.keys():
        differing = config_differences(question.base, question.changed)
        found += unlike_facts(facts[BASE], facts[CHANGE], differing, steps=question.is_about_speed)
    for row in rows:
        if row.purpose == STEPS and row.arm == CHANGE and row.state == FAILED:
            found.append(f"the steps of the change cannot be compared with those of base: {row.reason}")
        if row.purpose == STEPS and row.arm == CHANGE and row.state == COMPLETED:
            numerics = class_of(row.findings, question.tolerances)
            if numerics.name == DIFFERENT:
                found.append(
                    f"the change computes different numbers: after one step the {numerics.worst} differs by "
                    f"{numerics.biggest:.2g} of its size, and rounding explains {question.tolerances[1]:.2g}"
                )
    return tuple(found)


def pairs(rows: Sequence[Row], purpose: str) -> list[Pair]:
    """The complete rounds with this purpose, in order. Of a round that was interrupted, the attempt that completed."""
    attempts: dict[int, dict[int, Row]] = {}
    for row in rows:
        if row.purpose != purpose:
            continue
        if row.place == 0:
            attempts[row.round] = {}
        if row.state == COMPLETED and row.round in attempts:
            attempts[row.round][row.place] = row
    found = []
    for number in sorted(attempts):
        if attempts[number].keys() == {0, 1}:
            first, second = attempts[number][0], attempts[number][1]
            found.append(Pair(second, first) if first.arm == CHANGE else Pair(first, second))
    return found


def _failure_of_change(rows: Sequence[Row]) -> str | None:
    failed = next((row for row in rows if row.state == FAILED and row.arm == CHANGE and row.purpose != STEPS), None)
    return None if failed is None else f"the change fails where base does not: {failed.reason}"
