"""Measures configurations for the search: runs of fresh ranks in a drawn order, all of them in a ledger."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from manyheads.runner.commands.explain.limits import Limit, Seconds
from manyheads.runner.commands.tune.budget import Budget, arm_of, log_seconds
from manyheads.runner.commands.tune.proof import PROOF
from manyheads.runner.commands.tune.race import BASE, Times, Variant
from manyheads.runner.commands.tune.screening import COSTLY, SCREEN, BudgetSpent
from manyheads.runner.commands.tune.trial import SAME, SHARES, Refused, gradients_of
from manyheads.runner.commands.tune.tuning_runs import LIMITS, TuningRuns
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.judge import purposes
from manyheads.runner.judge.judgement import remove_steps
from manyheads.runner.judge.question import TRIAL_UPDATES
from manyheads.runner.judge.rounds import scale_of
from manyheads.runner.judge.rows import BASE as BASE_ARM
from manyheads.runner.judge.rows import COMPLETED, EXACT, FACTS, FLOOR, STEPS, TRIAL, RunRow
from manyheads.runner.judge.runs import Runs
from manyheads.runner.judge.task import BATCH_STATISTICS
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.progress import say

LEAST_RUNS = 30  # a tuning that can make fewer cannot tell anything
LEAST_SECONDS = 0.2  # that starting ranks takes on any machine
FIRST_SLOWER = 2.0  # times as long as later ones the first run of a configuration may take
COMPARED = 5  # runs that comparing the first updates of a configuration takes at most
LIMITS_SECONDS = 10.0  # that measuring what limits a configuration takes, beside its start


@dataclass
class Bench:
    """``run``: composes a configuration; ``draw``: of the orders.

    ``refused``: by overrides, why a configuration could not run, or may not be chosen. The search asks for the same
    runs in the same order as long as it is told the same, so what the ledger holds already is read from it.
    """

    runs: Runs
    run: Callable[[Variant], RunConfig]
    draw: str
    budget: Budget
    refused: dict[str, str]
    _rounds: Counter[str] = field(default_factory=Counter)
    _classes: dict[tuple[object, ...], str | None] = field(default_factory=dict)  # that were found by comparing
    _tuning: TuningRuns = field(init=False)

    def __post_init__(self) -> None:
        self._tuning = TuningRuns(self.runs, self.run, self.budget)

    def prepare(self) -> None:
        """Measure how long an update of the user's own configuration takes.

        Raises what it fails with, and ConfigurationError if the budget is too small.
        """
        self._check_budget(LEAST_SECONDS)
        say("your own configuration")
        self._tuning.start(purposes.facts(), BASE)
        self._tuning.start(purposes.pace(TRIAL, TRIAL_UPDATES), BASE)
        self._check_budget(self._tuning.seconds_of_timed / FIRST_SLOWER)
        for place in range(2):
            self._tuning.start(purposes.pace(FLOOR, self._tuning.updates()), BASE, 0, place)
        self._check_budget(self.budget.seconds_of(BASE))

    def _check_budget(self, seconds: float) -> None:
        """Refuse a budget in which nothing could be decided. ``seconds``: what a run takes, at least."""
        if LEAST_RUNS * seconds > self.budget.left:
            needed = self.budget.total - self.budget.left + LEAST_RUNS * seconds
            raise ConfigurationError(
                f"--budget: a run takes at least {seconds:.1f} s, and a tuning makes at least {LEAST_RUNS}. Allow at "
                f"least {math.ceil(needed)} s.",
                key="--budget",
            )

    def close(self) -> None:
        """Remove what comparing configurations has left."""
        remove_steps(self.runs)

    @property
    def left(self) -> float:
        """The part of the budget that is left."""
        return self.budget.left / self.budget.total

    @property
    def scale(self) -> float:
        """The spread of the user's own configuration from one round to the next, before anything is decided."""
        before = (FLOOR, SCREEN)
        own = [row for row in self.budget.rows() if row.arm == BASE_ARM and row.state == COMPLETED]
        times = [log_seconds(row) for row in own if row.purpose in before]
        return scale_of([one - other for one, other in pairwise(times)])

    def share(self, candidates: Sequence[Variant]) -> float:
        """The part of the budget that a run of each of these candidates takes."""
        return sum(map(self.budget.seconds_of, candidates)) / self.budget.total

    def round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        """Each candidate once, in a drawn order; without those that failed. Raises BudgetSpent."""
        number = self._rounds[purpose]
        if self.share(candidates) > self.left:
            raise BudgetSpent
        self._rounds[purpose] += 1
        say(f"{purpose} {number + 1}: {len(candidates)} configurations, {self.left:.0%} of the budget left")
        found = {}
        for place, each in enumerate(_in_drawn_order(candidates, f"{self.draw} {purpose} {number}", self._launcher_of)):
            row = self._tuning.start(purposes.pace(purpose, self._tuning.updates()), each, number, place)
            if reason := self._fault(row):
                self.refused[arm_of(each)] = reason
            else:
                found[each] = log_seconds(row)
        return found

    def _fault(self, row: RunRow) -> str:
        """Why a timed run does not count; empty if it does."""
        if row.state != COMPLETED:
            return f"failed: {row.reason}"
        own = next(row.findings["samples"] for row in self.runs.ledger.rows() if row.purpose == FLOOR)
        samples = row.findings["samples"]
        return "" if samples == own else f"computes something else: {samples} samples in as many updates, not {own}"

    def expected(self, candidate: Variant) -> str | None:
        """The class of what the candidate computes, as its options declare it, or as another one like it was found."""
        known = self._signature(candidate)
        if known not in self._classes:
            found = self._tuning.trial(candidate).expected
            # Ranks have shares of their own, but there is no BatchNorm.
            found = SAME if found == SHARES and not self._tuning.facts[BATCH_STATISTICS] else found
            if known == self._signature(BASE):  # of which one that is refused says nothing
                return found
            self._classes[known] = found
        return self._classes[known]

    def is_costly(self, candidate: Variant) -> bool:
        """Whether a run of it is expected to take more than COSTLY of the budget, which is then recorded."""
        seconds = self.budget.seconds_of(candidate)
        if seconds <= COSTLY * self.budget.total:
            return False
        needed = math.ceil(seconds / COSTLY / 60)
        self.refused[arm_of(candidate)] = f"a run takes some {seconds:.0f} s; a --budget of {needed}m or more tries it"
        return True

    def numerics(self, candidate: Variant) -> str | None:
        """The class of what the candidate computes, compared with the user's own; None if it may not be chosen.

        Raises BudgetSpent.
        """
        if self.share([candidate] * COMPARED) > self.left:
            raise BudgetSpent
        say(f"comparing the first updates of {arm_of(candidate)}")
        known = self._signature(candidate)
        found = self._asked(candidate, self._tuning.trial(candidate).examine, FACTS, STEPS, EXACT)
        if found is not None or known != self._signature(BASE):
            self._classes[known] = found
        return found

    def _asked(self, candidate: Variant, ask: Callable[[], str], *purposes: str) -> str | None:
        """What ``ask`` finds, by runs for these purposes; None if that is refused."""
        try:
            return ask()
        except Refused as error:
            self.refused[arm_of(candidate)] = str(error)
            return None
        finally:
            rows = self.runs.ledger.rows()
            self.budget.count(row for row in rows if row.arm == arm_of(candidate) and row.purpose in purposes)

    def is_proved(self, candidate: Variant) -> bool:
        """Whether it also evaluates and writes a checkpoint. Raises BudgetSpent."""
        if self.budget.left < self.budget.seconds_of(candidate) + self._tuning.seconds_of_proof:
            raise BudgetSpent
        say(f"updates, an evaluation and a checkpoint of {arm_of(candidate)}")
        row = self._tuning.start(PROOF, candidate)
        if row.state != COMPLETED:
            self.refused[arm_of(candidate)] = f"failed: {row.reason}"
        return row.state == COMPLETED

    def limits(self, variants: Sequence[Variant]) -> dict[Variant, Limit]:
        """What limits each of these configurations, if there is time left to measure all of them."""
        found = {}
        for each in dict.fromkeys(variants):
            if self.budget.left < LIMITS_SECONDS + 2 * self.budget.seconds_of(each):
                return {}
            say(f"measuring what limits {arm_of(each)}")
            row = self._tuning.start(LIMITS, each)
            if row.state == COMPLETED:
                found[each] = Limit.of({name: Seconds.of(times) for name, times in row.findings["floors"].items()})
        return found

    def _launcher_of(self, variant: Variant) -> object:
        return self.run(variant).written["launcher"]

    def _signature(self, variant: Variant) -> tuple[object, ...]:
        """What the class of numerics follows from, but for cheats."""
        run = self.run(variant)
        shares = run.data_shares, run.parallel.sync_batchnorm, run.trainer.grad_accumulation
        return run.precision.name, *shares, gradients_of(run)


def _in_drawn_order(
    candidates: Sequence[Variant], draw: str, launcher_of: Callable[[Variant], object]
) -> list[Variant]:
    """An order in which each of any two is as likely to be the first.

    Those with the same launcher run one after another: their ranks are forked from one process, which takes seconds
    to start over for others.
    """

    def coin(about: object) -> str:
        return hashlib.sha256(f"{draw} {about}".encode()).hexdigest()

    return sorted(candidates, key=lambda each: (coin(launcher_of(each)), coin(arm_of(each))))
