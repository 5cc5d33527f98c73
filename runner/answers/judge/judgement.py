"""Conducts a judgement from its question to its verdict; its folder records the progress."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from manyheads.runner.answers.judge import purposes
from manyheads.runner.answers.judge.audit import faults
from manyheads.runner.answers.judge.claims import REFUSED, UNDECIDED, Claims, claims_of, rounds_needed
from manyheads.runner.answers.judge.judgement_page import as_page
from manyheads.runner.answers.judge.numerics import SAME_BITS
from manyheads.runner.answers.judge.question import FLOOR_ROUNDS, TRIAL_UPDATES, Question
from manyheads.runner.answers.judge.rounds import is_base_first, pairs, updates_of
from manyheads.runner.answers.judge.rows import (
    BASE,
    CHANGE,
    COMPLETED,
    EXACT,
    FACTS,
    FAILED,
    FLOOR,
    ROUND,
    STEPS,
    TRIAL,
    RunRow,
)
from manyheads.runner.answers.judge.runs import Purpose, Runs
from manyheads.runner.answers.measure.steps_task import StepFiles
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.machine.process import blocked_signals
from manyheads.runner.option.locate import Section
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.files import remove, write_whole
from manyheads.runner.run.progress import say
from manyheads.runner.run.run_folder import RunFolder

FILE, PAGE = "judgement.json", "judgement.html"
MOST_ROUNDS = 200
CHANGED_NUMERICS = (
    "To compare complete trainings of a change that computes something else on purpose: --on speed,<metric> "
    "--allow-changed-numerics."
)


class BudgetTooSmall(ConfigurationError):
    """A budget in which nothing can be decided, noticed before the first round."""


def remove_steps(runs: Runs) -> None:
    """Remove the recorded steps of base, including those of attempts that were killed."""
    with blocked_signals():
        for row in runs.ledger.rows():
            if row.purpose in (STEPS, EXACT) and row.arm == BASE:
                remove(_steps_of(runs, row).folder)


def _steps_of(runs: Runs, row: RunRow) -> StepFiles:
    return StepFiles.of(RunFolder(runs.folder / row.folder))


@dataclass(frozen=True)
class Judgement:
    """A judgement in the folder of ``runs``.

    ``budget``: seconds from the call of ``decide``; ``keeps_steps``: keep base's steps for other judgements of the same
    base.
    """

    runs: Runs
    question: Question
    budget: float
    keeps_steps: bool = False

    def decide(self) -> Claims:
        """Run rounds until there is a verdict or the budget is spent, and write judgement.json.

        Raises ConfigurationError if the arms cannot be compared, BudgetTooSmall if nothing can be decided within the
        budget, and RunFailed if base fails.
        """
        until = time.monotonic() + self.budget
        self.examine()
        if self.claims().verdict == UNDECIDED and self.count(FLOOR):  # a judgement that is continued
            self._announce(until - time.monotonic())
            self._run(purposes.facts(), BASE)  # the data may have changed since
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
        if not self.keeps_steps:
            remove_steps(self.runs)
        about_speed = (self._steps, self._exact, self._trial) if self.question.is_about_speed else ()
        for ask in (self.ask_facts, *about_speed):
            if self.claims().verdict == UNDECIDED:
                ask()

    def ask_facts(self) -> None:
        """Find out what both arms compute on, unless the ledger already says it."""
        for arm in (BASE, CHANGE):
            if not self._rows(FACTS, arm):
                self._run(purposes.facts(), arm)

    def _steps(self) -> None:
        if self._rows(STEPS, CHANGE):
            return
        compiled = [each["trainer"]["compile"] for each in (self.question.base, self.question.changed)]
        trace = (
            {*compiled} == {"none"} and RunConfig.of(self.question.base).launcher.ranks == 1 and not self.keeps_steps
        )
        self._compare(partial(purposes.steps, tolerance=self.question.tolerances[0], trace=trace))

    def _exact(self) -> None:
        """Compare steps in double precision, unless they are bit-identical or the change asks only for a precision."""
        same = self.claims().numerics == SAME_BITS or self.question.changes_only_precision
        tried = (row for row in self.runs.ledger.rows() if row.purpose == EXACT)
        if not same and not any(row.arm == CHANGE or row.state == FAILED for row in tried):
            self._compare(purposes.exact)

    def _compare(self, purpose: Callable[..., Purpose]) -> None:
        """Record base's steps, take the change's from the same states and compare them; then remove the record."""
        try:
            row = self._kept(purpose(baseline=None)) or self._run(purpose(baseline=None), BASE)
            if row.state == COMPLETED:
                self._run(purpose(baseline=RunFolder(self.runs.folder / row.folder)), CHANGE)
        finally:
            if not self.keeps_steps:
                remove_steps(self.runs)

    def _kept(self, purpose: Purpose) -> RunRow | None:
        """The run of base whose recorded steps still exist, if there is one."""
        found = (row for row in self._rows(purpose.name, BASE) if _steps_of(self.runs, row).folder.exists())
        return next(found, None)

    def _trial(self) -> None:
        if not self._rows(TRIAL, BASE):
            self._run(purposes.pace(TRIAL, TRIAL_UPDATES), BASE)

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
        made = [
            self._run(self._measured(purpose), arm if purpose == ROUND else BASE, number, place)
            for place, arm in enumerate(arms)
        ]
        if all(row.state == FAILED for row in made):
            message = f"both arms failed in round {number + 1}: {made[arms.index(BASE)].reason}"
            raise RunFailed(Failure(Kind.PROGRAM_FAILED, message=message))

    def _run(self, purpose: Purpose, arm: str, round: int = 0, place: int = 0) -> RunRow:
        config = self._config(purpose.name, arm, round, place)
        return self.runs.start(config, purpose, arm=arm, round=round, place=place)

    def _measured(self, purpose: str) -> Purpose:
        """What the runs of a round do."""
        if self.question.is_about_speed:
            return purposes.pace(purpose, self._updates())
        return purposes.training(purpose, self.question.aims)

    def _config(self, purpose: str, arm: str, round: int, place: int) -> Section:
        facts = self._rows(FACTS, arm)
        per_epoch = facts[0].findings["per_epoch"] if facts else 1
        is_timed = self.question.is_about_speed and purpose in (FLOOR, ROUND)
        updates = TRIAL_UPDATES if purpose == TRIAL else self._updates() if is_timed else 0
        where = {"round": round, "place": place}
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
        found = [pair for purpose in (FLOOR, ROUND) for pair in pairs(self.runs.ledger.rows(), purpose)]
        times = [sum(row.duration for row in (pair.base, pair.change)) for pair in found[-5:]]
        return median(times)  # the first after a restart is slow, and one may stall
