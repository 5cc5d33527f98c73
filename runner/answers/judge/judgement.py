"""Conducts a judgement from its question to its verdict; its folder records the progress."""

import json
import math
import time
from dataclasses import dataclass
from statistics import median

from manyheads.runner.answers.judge.check_judgement import faults
from manyheads.runner.answers.judge.claims import REFUSED, UNDECIDED, Claims, claims_of, rounds_needed
from manyheads.runner.answers.judge.judgement_page import as_page
from manyheads.runner.answers.judge.question import FLOOR_ROUNDS, Question
from manyheads.runner.answers.judge.rounds import pairs, training
from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES
from manyheads.runner.answers.measure.examination import Examination
from manyheads.runner.answers.measure.rounds import is_base_first, updates_of
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FACTS, FAILED, FLOOR, ROUND, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.option.locate import Section
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.progress import say

FILE, PAGE = "judgement.json", "judgement.html"
MOST_ROUNDS = 200
CHANGED_NUMERICS = (
    "To compare complete trainings of a change that computes something else on purpose: --on speed,<metric> "
    "--allow-changed-numerics."
)


class BudgetTooSmall(ConfigurationError):
    """A budget in which nothing can be decided, noticed before the first round."""


@dataclass(frozen=True)
class Judgement:
    """A judgement in the folder of ``runs``. ``budget``: seconds from the call of ``decide``."""

    runs: Runs
    question: Question
    budget: float

    def decide(self) -> Claims:
        """Run rounds until there is a verdict or the budget is spent, and write judgement.json.

        Raises ConfigurationError if the arms cannot be compared, BudgetTooSmall if nothing can be decided within the
        budget, and RunFailed if base fails.
        """
        until = time.monotonic() + self.budget
        self.examine()
        if self.claims().verdict == UNDECIDED and self.count(FLOOR):  # a judgement that is continued
            self._announce(until - time.monotonic())
            self.examination.start(purposes.facts(), BASE)  # the data may have changed since
        if self.claims().verdict == UNDECIDED:
            self._floor(until)
        while (claims := self.claims()).verdict == UNDECIDED and self._fits(until) and self.count(ROUND) < MOST_ROUNDS:
            self.round(ROUND, self.count(ROUND))
        self.write(claims)
        if claims.verdict == REFUSED:
            hint = f" {CHANGED_NUMERICS}" if self.question.is_about_speed else ""
            raise ConfigurationError(f"{'; '.join(claims.reasons)}. Such arms are not compared.{hint}")
        return claims

    def claims(self) -> Claims:
        """The claims that follow from the runs so far."""
        return claims_of(self.question, self.runs.ledger.rows())

    def write(self, claims: Claims) -> None:
        """Write judgement.json, which holds the whole ledger, and a page for people."""
        lines = self.runs.ledger.lines()
        content = {"lines": lines, "claims": claims.to_json()}
        write_whole(self.runs.folder / FILE, json.dumps(content, indent=2) + "\n")
        page = as_page(self.question, self.runs.ledger.rows(), claims, faults(content))
        write_whole(self.runs.folder / PAGE, page)

    # -- runs ----------------------------------------------------------------------------------------

    def examine(self) -> None:
        """Examine both arms before the rounds; stop as soon as they cannot be compared."""
        self.examination.run()
        if self.claims().verdict == UNDECIDED and self.question.is_about_speed and not self._rows(TRIAL, BASE):
            self._run(purposes.pace(TRIAL, TRIAL_UPDATES), BASE)

    @property
    def examination(self) -> Examination:
        """The runs that show whether the arms can be compared."""
        return Examination(self.runs, self.question.configs, needs_same_steps=self.question.is_about_speed)

    def _floor(self, until: float) -> None:
        """Run base against base. Raises BudgetTooSmall once it is clear that no verdict fits before ``until``."""
        for number in range(self.count(FLOOR), FLOOR_ROUNDS):
            say(f"base against base, {number + 1} of {FLOOR_ROUNDS}")
            self.round(FLOOR, number)
            if number == 0:
                self._announce(until - time.monotonic())

    def round(self, purpose: str, number: int) -> None:
        """Run both arms, or for the noise floor base twice, in the order that the coin decides.

        Raises RunFailed if both fail.
        """
        arms = [BASE, CHANGE] if is_base_first(self.question.draw, purpose, number) else [CHANGE, BASE]
        if purpose == ROUND:
            say(f"round {number + 1}")
        rows = [
            self._run(self._measured(purpose), arm if purpose == ROUND else BASE, number, turn)
            for turn, arm in enumerate(arms)
        ]
        if all(row.state == FAILED for row in rows):
            message = f"both arms failed in round {number + 1}: {rows[arms.index(BASE)].reason}"
            raise RunFailed(Failure(Kind.PROGRAM_FAILED, message=message))

    def _run(self, purpose: Purpose, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        config = self._config(purpose.name, arm, round, turn)
        return self.runs.start(config, purpose, arm=arm, round=round, turn=turn)

    def _measured(self, purpose: str) -> Purpose:
        """What the runs of a round do."""
        if self.question.is_about_speed:
            return purposes.pace(purpose, self._updates())
        return training(purpose, self.question.aims)

    def _config(self, purpose: str, arm: str, round: int, turn: int) -> Section:
        facts = self._rows(FACTS, arm)
        per_epoch = facts[0].findings["per_epoch"] if facts else 1
        is_timed = self.question.is_about_speed and purpose in (FLOOR, ROUND)
        updates = TRIAL_UPDATES if purpose == TRIAL else self._updates() if is_timed else 0
        where = {"round": round, "turn": turn}
        return self.question.config(purpose, arm, **where, updates=updates, per_epoch=per_epoch)

    def _updates(self) -> int:
        """How many updates are timed."""
        return updates_of(self.runs.ledger.rows())

    def _rows(self, purpose: str, arm: str) -> list[RunRow]:
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

    def _fits(self, until: float) -> bool:
        return time.monotonic() + self._seconds_per_round() <= until

    def _seconds_per_round(self) -> float:
        rounds = [pair for purpose in (FLOOR, ROUND) for pair in pairs(self.runs.ledger.rows(), purpose)]
        times = [sum(row.duration for row in (pair.base, pair.change)) for pair in rounds[-5:]]
        return median(times)  # the first after a restart is slow, and one may stall
