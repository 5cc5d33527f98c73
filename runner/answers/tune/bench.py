"""Measures configurations for the search: runs with new ranks, in a randomly drawn order, recorded in a ledger."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES
from manyheads.runner.answers.measure.limits import Limit, Seconds
from manyheads.runner.answers.measure.rounds import scale_of
from manyheads.runner.answers.measure.rows import BASE as BASE_ARM
from manyheads.runner.answers.measure.rows import COMPLETED, EXACT, FACTS, FLOOR, STEPS, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.tune.budget import FIRST_SLOWER, Budget, arm_of, log_seconds
from manyheads.runner.answers.tune.measurements import TimeSpent
from manyheads.runner.answers.tune.memory import too_large
from manyheads.runner.answers.tune.race import BASE, Times, Variant
from manyheads.runner.answers.tune.screening import COSTLY, SCREEN
from manyheads.runner.answers.tune.trial import Refused
from manyheads.runner.answers.tune.tuning_runs import LIMITS, PROOF, NumericsClasses, TuningRuns
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.progress import say

LEAST_RUNS = 30  # with fewer, a tuning cannot find anything
LEAST_SECONDS = 0.2  # starting ranks takes at least this long on any machine
COMPARED = 5  # comparing the first updates of a configuration takes at most this many runs
MOST_TRIALS = 4  # short runs, until two of them agree: the machine may be busy with what ran before
AGREEING = 1.5  # times as many seconds at most
LIMITS_SECONDS = 10.0  # measuring what limits a configuration takes this long, in addition to its start


@dataclass
class Bench:
    """Measures configurations for the search.

    ``run``: composes a configuration. ``draw``: the random number that decides the orders. ``refused``: why a
    configuration could not run or may not be chosen, by its overrides; it is added to. The search is deterministic:
    given the same results it requests the same runs in the same order, so a continued tuning reads runs from its
    ledger.
    """

    runs: Runs
    run: Callable[[Variant], RunConfig]
    draw: str
    budget: Budget
    refused: dict[str, str]
    _rounds: Counter[str] = field(default_factory=Counter)
    _tuning: TuningRuns = field(init=False)
    _classes: NumericsClasses = field(init=False)

    def __post_init__(self) -> None:
        self._tuning = TuningRuns(self.runs, self.run, self.budget)
        self._classes = NumericsClasses(self._tuning)

    def prepare(self) -> None:
        """Measure how long an update of the user's own configuration takes.

        Raises RunFailed or ConfigurationError if it fails, and ConfigurationError if the budget is too small.
        """
        self._check_budget(LEAST_SECONDS)
        say("your own configuration")
        self._tuning.start(purposes.facts(), BASE)
        trials = list[float]()
        while len(trials) < MOST_TRIALS and not _agree(trials):
            trial = self._tuning.start(purposes.pace(TRIAL, TRIAL_UPDATES), BASE, 0, len(trials))
            trials.append(trial.findings["seconds"])
        self._check_budget(self._tuning.seconds_of_timed / FIRST_SLOWER)
        for position in range(2):
            self._tuning.start(purposes.pace(FLOOR, self._tuning.updates()), BASE, 0, position)
        self._check_budget(self.budget.seconds_of(BASE))

    def _check_budget(self, seconds: float) -> None:
        """Raise ConfigurationError if the budget is too small. ``seconds``: what a run takes, at least."""
        if LEAST_RUNS * seconds > self.budget.left:
            needed = self.budget.total - self.budget.left + LEAST_RUNS * seconds
            raise ConfigurationError(
                f"--budget: a run takes at least {seconds:.1f} s, and a tuning makes at least {LEAST_RUNS}. Allow at "
                f"least {math.ceil(needed)} s.",
                key="--budget",
            )

    @property
    def left(self) -> float:
        """The fraction of the budget that is left."""
        return self.budget.left / self.budget.total

    @property
    def scale(self) -> float:
        """The spread of the user's own configuration from one round to the next, before the deciding rounds."""
        rows = [row for row in self.budget.rows() if row.arm == BASE_ARM and row.state == COMPLETED]
        times = [log_seconds(row) for row in rows if row.purpose in (FLOOR, SCREEN)]
        return scale_of([one - other for one, other in pairwise(times)])

    def share(self, candidates: Sequence[Variant]) -> float:
        """The fraction of the budget that a run of each of these candidates takes in total."""
        return self.budget.seconds_of(*candidates) / self.budget.total

    def round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        """Run each candidate once, in a drawn order; return the times of those that succeed. Raises TimeSpent."""
        number = self._rounds[purpose]
        if self.share(candidates) > self.left:
            raise TimeSpent
        self._rounds[purpose] += 1
        say(f"{purpose} {number + 1}: {len(candidates)} configurations, {self.left:.0%} of the budget left")
        times = {}
        order = self._in_drawn_order(candidates, f"{self.draw} {purpose} {number}")
        for position, candidate in enumerate(order):
            row = self._tuning.start(purposes.pace(purpose, self._tuning.updates()), candidate, number, position)
            if reason := self._fault(row):
                self.refused[arm_of(candidate)] = reason
            else:
                times[candidate] = log_seconds(row)
        return times

    def _fault(self, row: RunRow) -> str:
        """The reason why a timed run is not valid; empty if it is."""
        if row.state != COMPLETED:
            return f"failed: {row.reason}"
        expected = next(row.findings["samples"] for row in self.runs.ledger.rows() if row.purpose == FLOOR)
        samples = row.findings["samples"]
        reason = f"computes something else: {samples} samples in as many updates, not {expected}"
        return "" if samples == expected else reason

    def expected(self, candidate: Variant) -> str | None:
        """The expected class of the candidate's numerics: as compared for one like it, or as declared."""
        return self._classes.expected(candidate)

    def is_costly(self, candidate: Variant) -> bool:
        """Whether a run of it is expected to take more than COSTLY of the budget, or more memory than a device has.

        If so, record it as refused.
        """
        if reason := too_large(candidate, self.run, self.budget.rows()):
            self.refused[arm_of(candidate)] = reason
            return True
        seconds = self.budget.seconds_of(candidate, like_first=True)
        if seconds <= COSTLY * self.budget.total:
            return False
        needed = math.ceil(seconds / COSTLY / 60)
        self.refused[arm_of(candidate)] = f"a run takes some {seconds:.0f} s; a --budget of {needed}m or more tries it"
        return True

    def numerics(self, candidate: Variant) -> str | None:
        """The class of the candidate's numerics, from comparing its first updates with those of the user's own.

        None if it may not be chosen. Raises TimeSpent.
        """
        if self.share([candidate] * COMPARED) > self.left:
            raise TimeSpent
        say(f"comparing the first updates of {arm_of(candidate)}")
        name = self._asked(candidate, self._tuning.trial(candidate).examine, FACTS, STEPS, EXACT)
        self._classes.note(candidate, name)
        return name

    def _asked(self, candidate: Variant, ask: Callable[[], str], *purposes: str) -> str | None:
        """The result of ``ask``, which starts runs for these purposes; None if the candidate is refused."""
        try:
            return ask()
        except Refused as error:
            self.refused[arm_of(candidate)] = str(error)
            return None
        finally:
            rows = self.runs.ledger.rows()
            self.budget.count(row for row in rows if row.arm == arm_of(candidate) and row.purpose in purposes)

    def is_proved(self, candidate: Variant) -> bool:
        """Whether the candidate can also evaluate and write a checkpoint. Raises TimeSpent."""
        if self.budget.left < self.budget.seconds_of(candidate) + self._tuning.seconds_of_proof:
            raise TimeSpent
        say(f"updates, an evaluation and a checkpoint of {arm_of(candidate)}")
        row = self._tuning.start(PROOF, candidate)
        if row.state != COMPLETED:
            self.refused[arm_of(candidate)] = f"failed: {row.reason}"
        return row.state == COMPLETED

    def limits(self, variants: Sequence[Variant]) -> dict[Variant, Limit]:
        """What limits each of these configurations; empty if there is not enough time to measure all of them."""
        limits = {}
        for variant in dict.fromkeys(variants):
            if self.budget.left < LIMITS_SECONDS + 2 * self.budget.seconds_of(variant):
                return {}
            say(f"measuring what limits {arm_of(variant)}")
            row = self._tuning.start(LIMITS, variant)
            if row.state == COMPLETED:
                limits[variant] = Limit.of({name: Seconds.of(times) for name, times in row.findings["floors"].items()})
        return limits

    def _in_drawn_order(self, candidates: Sequence[Variant], draw: str) -> list[Variant]:
        """A random order, in which either of any two candidates is equally likely to come first.

        Those with the same launcher settings are neighbours: their ranks are forked from one process, and starting
        another one takes seconds.
        """

        def coins(candidate: Variant) -> list[str]:
            about = (self.run(candidate).written["launcher"], arm_of(candidate))
            return [hashlib.sha256(f"{draw} {part}".encode()).hexdigest() for part in about]

        return sorted(candidates, key=coins)


def _agree(seconds: Sequence[float]) -> bool:
    """Whether the shortest two are about the same."""
    return len(seconds) > 1 and sorted(seconds)[1] <= AGREEING * min(seconds)
