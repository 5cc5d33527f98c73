"""The question whether one command, or the same command on changed files, is better."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from manyheads.runner.answers.judge.command.command_terms import command_aims
from manyheads.runner.answers.judge.question import ArmComparison, Question, are_numbers, are_texts
from manyheads.runner.answers.judge.terms import CLOCK, FOUND, SIGNS, Aim
from manyheads.runner.answers.measure.rounds import clocks_agree, seed
from manyheads.runner.answers.measure.rows import (
    BASE,
    CHANGE,
    COMPLETED,
    FLOOR,
    ROUND,
    TRIAL,
    RunRow,
    why_change_failed,
)
from manyheads.runner.run.seal import digest_of

SEED = "{seed}"
SAME, CHANGED = "same", "changed"  # findings: a number that must agree; files that no arm may change


@dataclass(frozen=True)
class CommandQuestion(Question):
    """Whether a changed command is better than base's, or the same one on changed files.

    ``command``, ``against``: as typed; without the latter, ``revision`` is the commit that base runs.
    ``within``: the working directory, relative to the files' folder.
    ``code``: a digest of base's files and of the change's.
    ``files``: those that differ.
    ``signs``: by number, 1 if higher is better, -1 if lower is.
    ``result``, ``evaluator``: as typed. ``frozen``, ``shared``: paths, relative to the files' folder.
    ``same``: the number that must agree, and by which fraction it may differ.
    """

    command: str
    against: str | None
    revision: str | None
    within: str
    code: list[str]
    files: list[str]
    signs: dict[str, int]
    result: str | None
    evaluator: str | None
    frozen: list[str]
    shared: list[str]
    same: list[Any] | None

    asker: ClassVar[str] = "manyheads.runner.answers.judge.command.judge_command"

    def is_sound(self) -> bool:
        lists = self.code, self.files, self.frozen, self.shared
        optional = (self.against, self.revision, self.result, self.evaluator)
        same = self.same or ["", 0]
        return (
            super().is_sound()
            and all(isinstance(value, list) and are_texts(value) for value in lists)
            and are_texts((self.command, self.within, *(value or "" for value in optional)))
            and isinstance(self.signs, dict)
            and {*self.signs.values()} <= {1, -1}
            and len(self.code) == len(same) == 2
            and are_texts(same[:1])
            and are_numbers(same[1:])
            and (self.against is None) != (self.revision is None)
        )

    @property
    def aims(self) -> tuple[Aim, ...]:
        return command_aims(self.on)

    @property
    def names(self) -> list[str]:
        """The numbers that each run must give."""
        return [*self.signs, *(self.same or [])[:1]]

    def line(self, arm: str) -> str:
        """The command of an arm, with a placeholder for its seed."""
        return self.command if arm == BASE or self.against is None else self.against

    def shares_seed(self, purpose: str) -> bool:
        return super().shares_seed(purpose) or (purpose == ROUND and self.same is not None)

    def seed(self, purpose: str, number: int, turn: int) -> int:
        """The seed of a run."""
        return seed(self.draw, purpose, number, 0 if self.shares_seed(purpose) else turn)

    def signature(self, arm: str) -> str:
        """A digest of what an arm runs."""
        return digest_of([self.line(arm), self.code[arm == CHANGE], self.within, self.evaluator])

    def refusals(self, rows: Sequence[RunRow]) -> tuple[str, ...]:
        completed = [row for row in rows if row.state == COMPLETED]
        return (*self._of_seeds(completed), *_of_files(completed), *_of_machines(completed), *self._of_same(completed))

    def _of_seeds(self, completed: Sequence[RunRow]) -> Iterator[str]:
        """Numbers that are the same whatever the seed is."""
        base = [row.findings[FOUND] for row in completed if row.arm == BASE and row.purpose in (TRIAL, FLOOR)]
        takes_seed = SEED in self.command
        if len(base) < (8 if takes_seed else 2):
            return
        for name in self.signs:
            if len({numbers[name] for numbers in base}) == 1:
                hint = f"Put {SEED} into the command, or have the script read MANYHEADS_SEED"
                hint = "The script seems to ignore the one that it is given" if takes_seed else hint
                yield (
                    f"{len(base)} runs of base with different seeds gave the same {name} to the last bit. One seed "
                    f"proves nothing about others. {hint}"
                )

    def _of_same(self, completed: Sequence[RunRow]) -> Iterator[str]:
        """Rounds whose runs, with the same seed, do not agree on the number that must agree."""
        if self.same is None:
            return
        name, allowed = self.same
        first: dict[tuple[str, int], RunRow] = {}
        for row in (row for row in completed if row.purpose in (TRIAL, ROUND)):
            other = first.setdefault((row.purpose, row.seed), row)
            one, two = (run.findings[SAME] for run in (other, row))
            if not math.isclose(one, two, rel_tol=allowed, abs_tol=0):
                yield (
                    f"both arms must give the same {name}, but with the same seed run {other.number} gave {one!r} and "
                    f"run {row.number} {two!r}, and a fraction of {allowed:g} is allowed"
                )
                return

    def comparison(self, rows: Sequence[RunRow]) -> ArmComparison:
        return ArmComparison(why_change_failed(rows, TRIAL))

    def faults(self, rows: Sequence[RunRow]) -> Iterator[str]:
        for row in rows:
            if row.signature != self.signature(row.arm):
                yield f"run {row.number} does not have the command of {row.arm}"
            if row.seed != (expected := self.seed(row.purpose, row.round, 0 if row.purpose == TRIAL else row.place)):
                yield f"run {row.number} has the seed {row.seed}, but the question and its draw give {expected}"
            if row.state == COMPLETED:
                yield from self._of_clock(row)

    def _of_clock(self, row: RunRow) -> Iterator[str]:
        seconds, marked = row.findings["seconds"], row.findings["marked"]
        if not 0 < seconds < math.inf or not clocks_agree(seconds, marked):
            yield f"run {row.number} took {seconds} s, but by the file system's clock {marked} s"
        if row.ended is None or seconds > row.ended - row.began:
            yield f"run {row.number} took {seconds} s, but less in all"
        if row.findings[SIGNS] != self.signs or row.findings[FOUND].get(CLOCK, seconds) != seconds:
            yield f"run {row.number} has other numbers than the question asks for"

    def differences(self) -> Mapping[str, Sequence[Any]]:
        return {} if self.against is None else {"command": [self.command, self.against]}

    def changed_files(self) -> Sequence[str]:
        return self.files

    def arguments(self) -> list[str]:
        flags = self.flags()
        is_lower = flags.pop("lower")
        flags |= {"lower": is_lower is True, "higher": is_lower is False}
        valued = [word for name, value in flags.items() if isinstance(value, str) for word in (f"--{name}", value)]
        return [*valued, *(f"--{name}" for name, value in flags.items() if value is True), *self.term_arguments()]

    def flags(self) -> dict[str, str | bool | None]:
        """The flags that ask it, by the names of CommandTerms's fields; None for those that are left out."""
        signs = {*self.signs.values()}  # both: their names say it, since a flag holds for all
        paths = {
            name: ",".join(os.path.relpath(path, self.within) for path in listed) or None
            for name, listed in (("frozen", self.frozen), ("share", self.shared))
        }
        return {
            "command": self.command,
            "against": self.against,
            "code": self.revision,
            "result": self.result,
            "lower": signs == {-1} if len(signs) == 1 else None,
            "same": None if self.same is None else f"{self.same[0]}:{self.same[1]!r}",
            "evaluator": self.evaluator,
            **paths,
        }

    def caveats(self) -> Iterator[str]:
        if self.same is None and CLOCK in self.on.split(","):
            yield "Whether both arms compute the same was not checked: --same names a number that must agree."
        if self.signs and SEED not in self.command:
            yield f"The command has no {SEED}: unless it reads MANYHEADS_SEED, the verdict is about one seed."
        if self.evaluator is None and self.signs:
            yield "The numbers are those that the command itself reports: --evaluator computes them apart."


def _of_files(completed: Sequence[RunRow]) -> Iterator[str]:
    """Runs that changed files that no arm may change."""
    for row in completed:
        if names := row.findings[CHANGED]:
            yield f"run {row.number}, of {row.arm}, changed {', '.join(names[:3])}, which no arm may change"
            return


def _of_machines(completed: Sequence[RunRow]) -> Iterator[str]:
    """Runs on another machine than the first."""
    for row in completed:
        if row.machine != completed[0].machine:
            yield f"run {row.number} was on another machine than run {completed[0].number}"
            return
