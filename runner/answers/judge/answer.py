"""The answers of the command ``judge``, and a judgement's verdict and findings as sentences."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from manyheads.runner.answers.judge.claims import DISCARD, KEEP, UNDECIDED, Claims, Effect, least_gain
from manyheads.runner.answers.judge.question import MOST_ROUNDS, Question
from manyheads.runner.answers.judge.terms import Aim
from manyheads.runner.answers.measure.hypotheses import NULLS
from manyheads.runner.answers.measure.numerics import CLASSES
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.crowding import crowded_runs
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted, tell

CODES = {KEEP: ExitCode.DONE, UNDECIDED: ExitCode.UNDECIDED}


@dataclass(frozen=True)
class Judged(Answer):
    """Whether a change is better, and how sure that is."""

    path: Annotated[Path, "judgement.json, with all runs"]
    change: Annotated[str, "the overrides that were judged"]
    on: Annotated[str, "what should improve: speed, metrics, or the seconds to a target"]
    least: Annotated[float, "the smallest gain worth having"]
    alpha: Annotated[float, "the error rate"]
    claims: Annotated[Claims, "the verdict, and what it follows from"]
    gains: Annotated[dict[str, float], "the median gain of the rounds so far, by aim, in the unit of its interval"]
    question: Annotated[Question, TEXT_ONLY]
    stopped: Annotated[str | None, "why it ended early: a budget of all runs was spent; null if it was not"] = None
    crowding: Annotated[str | None, "what other programs used meanwhile; null if all runs had their cores"] = None

    @classmethod
    def of(cls, path: Path, question: Question, claims: Claims, *, stopped: str | None = None) -> "Judged":
        """The answer from a judgement's file, question and claims. ``stopped``: why it ended early."""
        gains = {effect.on: median(effect.differences) for effect in claims.effects if effect.differences}
        return cls(
            path,
            question.change,
            question.on,
            question.least,
            question.alpha,
            claims,
            gains,
            question,
            stopped,
            crowded_runs(path.parent),
        )

    @property
    def exit_code(self) -> ExitCode:
        return CODES.get(self.claims.verdict, ExitCode.NO)

    def show(self) -> None:
        for sentence in (verdict_line(self.question, self.claims), *sentences(self.question, self.claims)):
            tell(sentence)
        if self.crowding is not None:
            tell(self.crowding)
        if self.stopped is not None:
            tell(f"{self.stopped} The same command continues.")
        tell(f"wrote {RunFolder(self.path)}")


@dataclass(frozen=True)
class CheckedJudgement(Answer):
    """Whether a judgement's claims follow from its rows."""

    path: Path
    runs: int
    wrong: Annotated[list[str], "what does not hold"]
    is_own: Annotated[bool, "whether you recorded the rows yourself"]
    again: Annotated[str, "the command that judges the change on this machine"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if self.wrong else ExitCode.DONE

    def show(self) -> None:
        for line in self.wrong:
            tell(f"does not hold: {line}")
        if self.wrong:
            return
        print(f"all claims follow from the {self.runs} runs.")
        print("You recorded these rows yourself." if self.is_own else "The rows were recorded by somebody else.")
        print(f"To judge it on this machine:\n  {self.again}")


def verdict_line(question: Question, claims: Claims) -> str:
    """The verdict and its reason, in a line."""
    if claims.reasons:
        return f"{claims.verdict}: {'; '.join(reason.rstrip('.') for reason in claims.reasons)}."
    numbers = f", {CLASSES[claims.numerics]}" if claims.numerics else ""
    numbers += "" if claims.exact is None else f" (in double precision they differ by {claims.exact:.1g})"
    worse = [effect for effect in claims.effects[1:] if effect.is_worse]
    if claims.verdict == DISCARD and worse:
        return f"discard: {_effect(worse[0], least=0)}."
    summary = _effect(claims.effects[0], least=least_gain(question)) if claims.effects else "nothing was measured"
    return f"{claims.verdict}: {summary}{numbers}."


def sentences(question: Question, claims: Claims) -> Iterator[str]:
    """Everything else: the other aims, the noise floor, failures, and what the error rate means."""
    for effect in claims.effects[1:]:
        yield f"{effect.on}: {_effect(effect, least=0)}."
    for effect in claims.effects:
        floor = f"{100 * math.expm1(effect.scale):.2g} %" if Aim(effect.on).is_relative else f"{effect.scale:.3g}"
        on = f" in {effect.on}" if len(claims.effects) > 1 else ""
        yield f"Noise floor: base against base typically differs by {floor}{on} ({len(effect.floor)} rounds)."
    if claims.verdict == UNDECIDED and any(len(effect.differences) >= MOST_ROUNDS for effect in claims.effects):
        yield f"More than {MOST_ROUNDS} rounds are not run, since the effect is small beside the noise."
    for arm, count in zip(("base", "the change"), claims.lost, strict=True):
        if count:
            yield f"In {counted(count, 'round')} only {arm} failed, and lost the round."
    if claims.interrupted:
        whose = "its round was" if claims.interrupted == 1 else "their rounds were"
        yield f"{counted(claims.interrupted, 'run')} never ended; {whose} repeated."
    if claims.effects:
        yield from question.caveats()
        yield (
            f"The verdict is wrong in at most {100 * question.alpha:g} % of cases, whenever one looks: "
            f"{NULLS[question.test]}. The interval is for a gain that is the same in every round."
        )


def _effect(effect: Effect, *, least: float) -> str:
    """The effect on one aim, as part of a sentence. ``least``: the smallest gain worth having in it."""
    aim, rounds = Aim(effect.on), counted(len(effect.differences), "round")
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
    middle, word = abs(shown(aim, median(effect.differences))), better if low > 0 else worse
    one, other = sorted((abs(low), abs(high)))
    return f"{about}{_number(middle)}{unit} {word} ({_number(one)} to {_number(other)}{unit}, {rounds})"


def shown(aim: Aim, difference: float) -> float:
    """A difference as it is shown: for seconds, percent fewer (negative: more); otherwise in the metric's unit."""
    return 100 * -math.expm1(-difference) if aim.is_relative else difference


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
