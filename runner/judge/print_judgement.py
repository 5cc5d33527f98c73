"""A judgement in sentences."""

import math
from collections.abc import Iterator
from statistics import median

from manyheads.runner.judge.claims import KEEP, UNDECIDED, Claims, least_gain
from manyheads.runner.judge.numerics import CLASSES
from manyheads.runner.judge.question import Question
from manyheads.runner.judge.sequential import TESTS


def verdict_line(question: Question, claims: Claims) -> str:
    """The verdict and why, in a line."""
    if claims.reasons:
        return f"{claims.verdict}: {'; '.join(each.rstrip('.') for each in claims.reasons)}."
    numbers = f", {CLASSES[claims.numerics]}" if claims.numerics else ""
    return f"{claims.verdict}: {_effect(question, claims)}{numbers}."


def sentences(question: Question, claims: Claims) -> Iterator[str]:
    """What was found beside the verdict, and what it means."""
    if claims.scale is None:
        return
    floor = f"{100 * math.expm1(claims.scale):.2g} %" if question.is_relative else f"{claims.scale:.3g}"
    yield f"Noise floor: base against base typically differs by {floor} ({len(claims.floor)} rounds)."
    yield (
        f"The verdict is wrong in at most {100 * question.alpha:g} % of cases, whenever one looks: "
        f"{TESTS[question.test].null}. The interval is for a gain that is the same in every round."
    )


def _effect(question: Question, claims: Claims) -> str:
    count = len(claims.differences)
    rounds = f"{count} round{'' if count == 1 else 's'}"
    if claims.low is None or claims.high is None:
        return f"nothing can be told after {rounds}"
    unit = " %" if question.is_relative else ""
    what = "seconds per update" if question.is_about_speed else question.on
    better, worse = (
        (f"fewer {what}", f"more {what}") if question.is_relative else (f"gain in {what}", f"loss in {what}")
    )
    low, high = _shown(question, claims.low), _shown(question, claims.high)
    if claims.verdict == UNDECIDED or low * high <= 0:
        least = _shown(question, least_gain(question))
        about = "" if claims.verdict == UNDECIDED else f"no gain of {least:.3g}{unit} or more: "
        return f"{about}between {_number(low)} and {_number(high)}{unit} {better} ({rounds})"
    middle = _shown(question, median(claims.differences))
    one, other = sorted((abs(low), abs(high)))
    word = better if claims.verdict == KEEP or middle > 0 else worse
    return f"{_number(abs(middle))}{unit} {word} ({_number(one)} to {_number(other)}{unit}, {rounds})"


def _shown(question: Question, difference: float) -> float:
    """A difference as people read it: for speed in percent fewer seconds; negative for more."""
    return 100 * -math.expm1(-difference) if question.is_relative else difference


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
