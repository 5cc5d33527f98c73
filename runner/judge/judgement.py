"""A judgement from its question to its verdict, in a folder that says at any time how far it is."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from manyheads.launchers.parent_signals import blocked_signals
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.judge import purposes
from manyheads.runner.judge.claims import REFUSED, UNDECIDED, Claims, claims_of, pairs
from manyheads.runner.judge.draw import is_base_first
from manyheads.runner.judge.question import FLOOR_ROUNDS, TRIAL_UPDATES, Question
from manyheads.runner.judge.rows import BASE, CHANGE, COMPLETED, FACTS, FLOOR, ROUND, STEPS, TRIAL, Row
from manyheads.runner.judge.runs import Purpose, Runs
from manyheads.runner.judge.sequential import TESTS, least_rounds
from manyheads.runner.option.locate import Section
from manyheads.runner.parity.parity_task import StepFiles
from manyheads.runner.run import seal
from manyheads.runner.run.files import remove, write_whole
from manyheads.runner.run.run_folder import RunFolder

FILE = "judgement.json"
MOST_ROUNDS = 200
ROUND_SECONDS = 0.5  # of timed updates per arm


@dataclass(frozen=True)
class Judgement:
    """``budget``: seconds from now; ``say``: shows a line of progress."""

    runs: Runs
    question: Question
    budget: float
    say: Callable[[str], None]

    def decide(self) -> Claims:
        """Run rounds until there is a verdict or the budget is spent, and write judgement.json.

        Raises ConfigurationError for arms that can't be compared, and for a budget in which nothing can be decided;
        RunFailed if base fails.
        """
        until = time.monotonic() + self.budget
        about_speed = (self._steps, self._trial) if self.question.is_about_speed else ()
        for ask in (self._facts, *about_speed, self._floor):
            claims = self.claims()
            if claims.verdict != UNDECIDED:
                break
            ask()
        claims = self.claims()
        if claims.verdict == UNDECIDED and not claims.differences:
            self._announce(until - time.monotonic())
        while claims.verdict == UNDECIDED and self._fits(until) and len(claims.differences) < MOST_ROUNDS:
            self._round(ROUND, len(claims.differences))
            claims = self.claims()
        self.write(claims)
        if claims.verdict == REFUSED:
            raise ConfigurationError(f"{'; '.join(claims.reasons)}. Such arms are not compared.")
        return claims

    def claims(self) -> Claims:
        return claims_of(self.question, self.runs.ledger.rows())

    def write(self, claims: Claims) -> None:
        """Write judgement.json, which holds the whole ledger."""
        lines = self.runs.ledger.lines()
        content = {"lines": lines, "claims": claims.to_json(), "seal": seal.keyed("judgement", lines[-1]["digest"])}
        write_whole(self.runs.folder / FILE, json.dumps(content, indent=2) + "\n")

    # -- what is run ---------------------------------------------------------------------------------

    def _facts(self) -> None:
        for arm in (BASE, CHANGE):
            if not self._rows(FACTS, arm):
                self._run(purposes.facts(), arm)

    def _steps(self) -> None:
        if self._rows(STEPS, CHANGE):
            return
        rounding = self.question.tolerances[0]
        compiled = [each["trainer"]["compile"] for each in (self.question.base, self.question.changed)]
        trace = {*compiled} == {"none"}
        baseline = None
        try:
            row = self._run(purposes.steps(tolerance=rounding, baseline=None, trace=trace), BASE)
            baseline = RunFolder(self.runs.folder / row.folder)
            self._run(purposes.steps(tolerance=rounding, baseline=baseline, trace=trace), CHANGE)
        finally:
            if baseline is not None:
                with blocked_signals():
                    remove(StepFiles.of(baseline).folder)

    def _trial(self) -> None:
        if not self._rows(TRIAL, BASE):
            self._run(purposes.pace(TRIAL, TRIAL_UPDATES), BASE)

    def _floor(self) -> None:
        for number in range(len(pairs(self.runs.ledger.rows(), FLOOR)), FLOOR_ROUNDS):
            self.say(f"base against base, {number + 1} of {FLOOR_ROUNDS}")
            self._round(FLOOR, number)

    def _round(self, purpose: str, number: int) -> None:
        """Both arms, in the order of the coin; base against itself for the noise floor."""
        arms = [BASE, CHANGE] if is_base_first(self.question.draw, purpose, number) else [CHANGE, BASE]
        if purpose == ROUND:
            self.say(f"round {number + 1}")
        for place, arm in enumerate(arms):
            self._run(self._measured(purpose), arm if purpose == ROUND else BASE, number, place)

    def _run(self, purpose: Purpose, arm: str, round: int = 0, place: int = 0) -> Row:
        config = self._config(purpose.name, arm, round, place)
        return self.runs.start(config, purpose, arm=arm, round=round, place=place)

    def _measured(self, purpose: str) -> Purpose:
        """What the runs of a round do."""
        if self.question.is_about_speed:
            return purposes.pace(purpose, self._updates())
        if self.question.target is not None:
            metric, value = self.question.target
            return purposes.reaching(purpose, metric, value)
        return purposes.training(purpose, self.question.on)

    def _config(self, purpose: str, arm: str, round: int, place: int) -> Section:
        facts = self._rows(FACTS, arm)
        per_epoch = facts[0].findings["per_epoch"] if facts else 1
        is_timed = self.question.is_about_speed and purpose in (FLOOR, ROUND)
        updates = TRIAL_UPDATES if purpose == TRIAL else self._updates() if is_timed else 0
        where = {"round": round, "place": place}
        return self.question.config(purpose, arm, **where, updates=updates, per_epoch=per_epoch)

    def _updates(self) -> int:
        """How many updates are timed, such that they take about ROUND_SECONDS."""
        return updates_of(self.runs.ledger.rows())

    def _rows(self, purpose: str, arm: str) -> list[Row]:
        """The completed runs of one kind."""
        return [
            row for row in self.runs.ledger.rows() if (row.purpose, row.arm, row.state) == (purpose, arm, COMPLETED)
        ]

    # -- the budget ----------------------------------------------------------------------------------

    def _announce(self, left: float) -> None:
        """Show how many rounds fit. Raises ConfigurationError if they can't decide anything."""
        seconds, least = self._seconds_per_round(), least_rounds(TESTS[self.question.test], self.question.alpha)
        fits = max(0, min(int(left / seconds), MOST_ROUNDS))
        if fits < least:
            needed = math.ceil(self.budget + (least - fits) * seconds)
            raise ConfigurationError(
                f"--budget: {fits} rounds of {seconds:.1f} s fit, but no verdict needs fewer than {least}. Allow at "
                f"least {needed} s."
            )
        self.say(f"a round takes {seconds:.1f} s: {fits} fit into the budget, the least that can decide is {least}")

    def _fits(self, until: float) -> bool:
        return time.monotonic() + self._seconds_per_round() <= until

    def _seconds_per_round(self) -> float:
        found = [pair for purpose in (FLOOR, ROUND) for pair in pairs(self.runs.ledger.rows(), purpose)]
        return max(sum((row.ended or row.began) - row.began for row in (pair.base, pair.change)) for pair in found[-3:])


def updates_of(rows: list[Row]) -> int:
    """The number of timed updates that follows from the trial run."""
    trial = next(row for row in rows if row.purpose == TRIAL and row.state == COMPLETED)
    per_update = trial.findings["seconds"] / trial.findings["updates"]
    return max(1, math.ceil(ROUND_SECONDS / per_update))
