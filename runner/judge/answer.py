"""The answers of the command ``judge``."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from manyheads.runner.errors import ExitCode
from manyheads.runner.judge.claims import KEEP, UNDECIDED, Claims
from manyheads.runner.judge.print_judgement import sentences, verdict_line
from manyheads.runner.judge.question import Question
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import tell

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

    @classmethod
    def of(cls, path: Path, question: Question, claims: Claims) -> "Judged":
        """The answer from a judgement's file, question and claims."""
        gains = {each.on: median(each.differences) for each in claims.effects if each.differences}
        return cls(path, question.change, question.on, question.least, question.alpha, claims, gains, question)

    @property
    def exit_code(self) -> ExitCode:
        return CODES.get(self.claims.verdict, ExitCode.NO)

    def show(self) -> None:
        for sentence in (verdict_line(self.question, self.claims), *sentences(self.question, self.claims)):
            tell(sentence)
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
