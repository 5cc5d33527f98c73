"""A judgement's verdict and findings as sentences, for the terminal and the page."""

import math
from collections.abc import Iterator
from statistics import median

from manyheads.runner.judge.aims import Aim
from manyheads.runner.judge.claims import DISCARD, Claims, Effect, least_gain
from manyheads.runner.judge.numerics import CLASSES
from manyheads.runner.judge.question import Question
from manyheads.runner.judge.sequential import TESTS


def verdict_line(question: Question, claims: Claims) -> str:
    """The verdict and its reason, in a line."""
    if claims.reasons:
        return f"{claims.verdict}: {'; '.join(each.rstrip('.') for each in claims.reasons)}."
    numbers = f", {CLASSES[claims.numerics]}" if claims.numerics else ""
    numbers += "" if claims.exact is None else f" (in double precision they differ by {claims.exact:.1g})"
    worse = [each for each in claims.effects[1:] if each.is_worse]
    if claims.verdict == DISCARD and worse:
        return f"discard: {_effect(worse[0], least=0)}."
    found = _effect(claims.effects[0], least=least_gain(question)) if claims.effects else "nothing was measured"
    return f"{claims.verdict}: {found}{numbers}."


def sentences(question: Question, claims: Claims) -> Iterator[str]:
    """Everything else: the other aims, the noise floor, failures, and what the error rate means."""
    for each in claims.effects[1:]:
        yield f"{each.on}: {_effect(each, least=0)}."
    for each in claims.effects:
        floor = f"{100 * math.expm1(each.scale):.2g} %" if Aim(each.on).is_relative else f"{each.scale:.3g}"
        on = f" in {each.on}" if len(claims.effects) > 1 else ""
        yield f"Noise floor: base against base typically differs by {floor}{on} ({len(each.floor)} rounds)."
    for arm, count in zip(("base", "the change"), claims.lost, strict=True):
        if count:
            yield f"In {count} round{'' if count == 1 else 's'} only {arm} failed, and lost the round."
    if claims.interrupted:
        yield (
            "1 run never ended; its round was repeated."
            if claims.interrupted == 1
            else f"{claims.interrupted} runs never ended; their rounds were repeated."
        )
    if claims.effects:
        yield (
            f"The verdict is wrong in at most {100 * question.alpha:g} % of cases, whenever one looks: "
            f"{TESTS[question.test].null}. The interval is for a gain that is the same in every round."
        )


def _effect(effect: Effect, *, least: float) -> str:
    """The effect on one aim, as part of a sentence. ``least``: the smallest gain worth having in it."""
    aim, count = Aim(effect.on), len(effect.differences)
    rounds = f"{count} round{'' if count == 1 else 's'}"
    if effect.low is None or effect.high is None:
        return f"no conclusion after {rounds}"
    unit = " %" if aim.is_relative else ""
    better, worse = (
        (f"fewer {aim.what}", f"more {aim.what}") if aim.is_relative else (f"gain in {aim.what}", f"loss in {aim.what}")
    )
    low, high = shown(aim, effect.low), shown(aim, effect.high)
    about = f"no gain of {shown(aim, least):.3g}{unit} or more: " if 0 < high < shown(aim, least) else ""
    if low * high <= 0:
        return f"{about}between {_number(low)} and {_number(high)}{unit} {better} ({rounds})"
    middle = shown(aim, median(effect.differences))
    one, other = sorted((abs(low), abs(high)))
    word = better if low > 0 else worse
    return f"{about}{_number(abs(middle))}{unit} {word} ({_number(one)} to {_number(other)}{unit}, {rounds})"


def shown(aim: Aim, difference: float) -> float:
    """A difference as it is shown: for seconds, percent fewer (negative: more); otherwise in the metric's unit."""
    return 100 * -math.expm1(-difference) if aim.is_relative else difference


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
