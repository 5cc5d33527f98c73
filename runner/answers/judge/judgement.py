"""Conducts a judgement from its question to its verdict; its folder records the progress."""

import json
import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import median

from manyheads.runner.answers.judge.claims import REFUSED, UNDECIDED, Claims, claims_of, pairs, rounds_needed
from manyheads.runner.answers.judge.question import FLOOR_ROUNDS, MOST_ROUNDS, Question
from manyheads.runner.answers.judge.recorded import FILE, faults
from manyheads.runner.answers.measure.recording import Recording
from manyheads.runner.answers.measure.rounds import is_base_first
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FAILED, FLOOR, ROUND, RunRow
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.progress import say

PAGE = "judgement.html"


class BudgetTooSmall(ConfigurationError):
    """A budget in which nothing can be decided, noticed before the first round."""


@dataclass(frozen=True)
class Judgement(ABC):
    """A judgement in the folder of ``runs``. ``budget``: seconds from the call of ``decide``."""

    runs: Recording
    question: Question
    budget: float

    def decide(self) -> Claims:
        """Run rounds until there is a verdict or the budget is spent, and write judgement.json.

        Raises ConfigurationError if the arms cannot be compared, BudgetTooSmall if nothing can be decided within the
        budget, RunFailed if base fails, and BudgetSpent if a run was refused or stopped by another budget.
        """
        until = time.monotonic() + self.budget
        self.examine()
        if self.claims().verdict == UNDECIDED and self.count(FLOOR):  # a judgement that is continued
            self._announce(until - time.monotonic())
            self.examine_again()
        if self.claims().verdict == UNDECIDED:
            self._floor(until)
        while (
            (claims := self.claims()).verdict == UNDECIDED
            and time.monotonic() + self._seconds_per_round() <= until
            and self.count(ROUND) < MOST_ROUNDS
        ):
            self.round(ROUND, self.count(ROUND))
        self.write(claims)
        if claims.verdict == REFUSED:
            raise ConfigurationError(f"{'; '.join(claims.reasons)}. Such arms are not compared.{self.hint}")
        return claims

    def stopped(self) -> Claims:
        """The claims of the runs so far, after ``decide`` was stopped; writes judgement.json."""
        claims = self.claims()
        self.write(claims)
        return claims

    def claims(self) -> Claims:
        """The claims that follow from the runs so far."""
        return claims_of(self.question, self.runs.ledger.rows())

    def write(self, claims: Claims) -> None:
        """Write judgement.json, which holds the whole ledger, and a page for people."""
        from manyheads.runner.answers.judge.judgement_page import as_page  # what draws it takes long to import

        content = {"lines": self.runs.ledger.lines(), "claims": claims.to_json()}
        write_whole(self.runs.folder / FILE, json.dumps(content, indent=2) + "\n")
        page = as_page(self.question, self.runs.ledger.rows(), claims, faults(content))
        write_whole(self.runs.folder / PAGE, page)

    # -- runs ----------------------------------------------------------------------------------------

    @property
    def hint(self) -> str:
        """A sentence after a refusal: how to ask instead."""
        return ""

    @abstractmethod
    def examine(self) -> None:
        """Examine both arms before the rounds; stop as soon as they cannot be compared."""

    @abstractmethod
    def examine_again(self) -> None:
        """Examine base once more, since what it reads may have changed before the judgement was continued."""

    @abstractmethod
    def run(self, purpose: str, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        """Run an arm for this purpose, and record it."""

    def _floor(self, until: float) -> None:
        """Run base against base. Raises BudgetTooSmall once it is clear that no verdict fits before ``until``."""
        for number in range(self.count(FLOOR), FLOOR_ROUNDS):
            say(f"base against base, {number + 1} of {FLOOR_ROUNDS}")
            self.round(FLOOR, number)
            if self.claims().verdict == REFUSED:
                return
            if number == 0:
                self._announce(until - time.monotonic())

    def round(self, purpose: str, number: int) -> None:
        """Run both arms, or for the noise floor base twice, in the order that the coin decides.

        Raises RunFailed if both fail.
        """
        arms = [BASE, CHANGE] if is_base_first(self.question.draw, purpose, number) else [CHANGE, BASE]
        if purpose == ROUND:
            say(f"round {number + 1}")
        rows = [self.run(purpose, arm if purpose == ROUND else BASE, number, turn) for turn, arm in enumerate(arms)]
        if all(row.state == FAILED for row in rows):
            message = f"both arms failed in round {number + 1}: {rows[arms.index(BASE)].reason}"
            raise RunFailed(Failure(Kind.PROGRAM_FAILED, message=message))

    def completed(self, purpose: str, arm: str) -> list[RunRow]:
        """The completed runs of one kind."""
        return [
            row for row in self.runs.ledger.rows() if (row.purpose, row.arm, row.state) == (purpose, arm, COMPLETED)
        ]

    def count(self, purpose: str) -> int:
        """The number of complete rounds with this purpose."""
        return len(pairs(self.runs.ledger.rows(), purpose))

    # -- the budget ----------------------------------------------------------------------------------

    def _announce(self, left: float) -> None:
        """Print how many rounds fit into ``left`` seconds. Raises BudgetTooSmall if a verdict needs more."""
        seconds, done = self._seconds_per_round(), self.count(ROUND)
        before = FLOOR_ROUNDS - self.count(FLOOR)
        least = max(0, rounds_needed(self.question) - done)
        fits = max(0, min(int(left / seconds) - before, MOST_ROUNDS - done))
        if fits < least:
            needed = math.ceil(self.budget - left + (before + least) * seconds)
            raise BudgetTooSmall(
                f"--budget: {fits} rounds of {seconds:.1f} s fit, but a verdict needs at least {least}. Allow at "
                f"least {needed} s.",
                key="--budget",
            )
        needs = f", a verdict needs at least {least}" if least else ""
        say(f"a round takes {seconds:.1f} s: {fits} fit into the budget{needs}")

    def _seconds_per_round(self) -> float:
        rounds = [pair for purpose in (FLOOR, ROUND) for pair in pairs(self.runs.ledger.rows(), purpose)]
        times = [sum(row.duration for row in (pair.base, pair.change)) for pair in rounds[-5:]]
        return median(times)  # the first after a restart is slow, and one may stall
