"""A recorded grid as a space and a bench: seconds are drawn from those that were measured, runs cost what they cost."""

import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from pathlib import Path
from statistics import fmean, median

from manyheads.runner.answers.measure.rounds import scale_of
from manyheads.runner.answers.tune.bench import LEAST_RUNS
from manyheads.runner.answers.tune.budget import arm_of
from manyheads.runner.answers.tune.measurements import TimeSpent
from manyheads.runner.answers.tune.race import BASE, Times, Variant
from manyheads.runner.answers.tune.screening import COSTLY, SCREEN
from manyheads.runner.answers.tune.space import OF_STRATEGY, STRATEGY
from manyheads.runner.answers.tune.trial import SAME

ROUNDS = 3  # whose time is that of a grid, however many were recorded
STALL = 2.0
FOLDER = Path(__file__).parent / "grids"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


class BudgetTooSmall(Exception):
    """The command refuses the budget before it searches."""


@dataclass(frozen=True)
class Grid:
    """``axes``: by key its values, the user's own first.

    By configuration: ``levels``: means of the logarithm of the seconds of an update, which count as the truth;
    ``residuals``: of its recorded rounds around it; ``seconds``: of those runs; ``classes``: of its numerics.
    ``drifts``: by recorded round, how much slower all configurations were than on average. ``stalls``: of runs whose
    updates took more than STALL times as long as usual, which is the machine's doing and may happen to any of them: the
    logarithm of how much longer they took, and how many times as long the whole run took; they are left out elsewhere.
    ``stalled``: the part of all runs that these are.
    """

    axes: Mapping[str, Sequence[str]]
    levels: Mapping[Variant, float]
    residuals: Mapping[Variant, Sequence[float]]
    seconds: Mapping[Variant, Sequence[float]]
    classes: Mapping[Variant, str | None]
    drifts: Sequence[float]
    stalls: Sequence[tuple[float, float]]
    stalled: float

    @classmethod
    def read(cls, name: str) -> "Grid":
        """A grid of FOLDER. Those whose numerics were not compared count as computing the same."""
        content = json.loads((FOLDER / f"{name}.json").read_text())
        count = max(map(len, content["log_seconds"].values()))
        times = {variant_of(arm): own for arm, own in content["log_seconds"].items() if len(own) == count}
        calm = {each: [time < median(own) + math.log(STALL) for time in own] for each, own in times.items()}
        whole = {each: fmean(own) for each, own in times.items() if all(calm[each])}
        drifts = [fmean(times[each][number] - mean for each, mean in whole.items()) for number in range(count)]
        steady = {each: [time - drift for time, drift in zip(own, drifts, strict=True)] for each, own in times.items()}
        levels = {each: fmean(compress(own, calm[each])) for each, own in steady.items()}
        apart = {each: [time - levels[each] for time in own] for each, own in steady.items()}
        wider = math.sqrt(count / (count - 1))  # others would lie less close to the mean of these
        residuals = {each: [wider * one for one in compress(own, calm[each])] for each, own in apart.items()}
        taken = {variant_of(arm): own for arm, own in content["run_seconds"].items()}
        seconds = {**taken, **{each: [*compress(taken[each], calm[each])] for each in times}}
        stalls = [
            (lost, took / fmean(seconds[each]))
            for each, own in apart.items()
            for lost, took, is_calm in zip(own, taken[each], calm[each], strict=True)
            if not is_calm
        ]
        classes = {each: content["numerics"].get(arm_of(each), SAME) for each in times} | {BASE: SAME}
        stalled = len(stalls) / (count * len(times))
        return cls(content["axes"], levels, residuals, seconds, classes, drifts, stalls, stalled)

    @property
    def total_seconds(self) -> float:
        """What it took to record three rounds of it."""
        return ROUNDS * sum(fmean(own) for own in self.seconds.values() if own)

    def best(self, among: Collection[Variant]) -> Variant:
        """The fastest of some configurations."""
        return min(among, key=lambda each: self.levels[each])

    def of_class(self, name: str | None) -> list[Variant]:
        """All configurations of a class of numerics."""
        return [each for each in self.levels if self.classes[each] == name]

    def regret(self, chosen: Variant, among: Collection[Variant]) -> float:
        """By which part of its seconds ``chosen`` is slower than the best of the others."""
        return abs(math.expm1(min(0.0, self.levels[self.best(among)] - self.levels[chosen])))

    def with_level(self, variant: Variant, level: float, numerics: str | None) -> "Grid":
        """The same grid, but for one configuration."""
        levels, classes = {**self.levels, variant: level}, {**self.classes, variant: numerics}
        return replace(self, levels=levels, classes=classes)

    # -- the space ---------------------------------------------------------------------------------------

    def steps(self, variant: Variant) -> list[str]:
        return [*self.axes]

    def alternatives(self, variant: Variant, step: str) -> list[Variant]:
        own = dict(each.split("=") for each in variant if step != STRATEGY or not each.startswith(OF_STRATEGY))
        found = [self.variant({**own, step: value}) for value in self.axes[step]]
        return [each for each in found if each != variant and each in self.seconds]

    def is_possible(self, variant: Variant) -> bool:
        return True

    def in_other_precisions(self, variant: Variant) -> list[Variant]:
        return []

    def variant(self, values: Mapping[str, str]) -> Variant:
        """The configuration with these values; keys that are left out have the user's own."""
        return tuple(f"{key}={values[key]}" for key, own in self.axes.items() if values.get(key, own[0]) != own[0])


def variant_of(arm: str) -> Variant:
    """A configuration by its name in a ledger."""
    return BASE if arm == arm_of(BASE) else tuple(arm.split())


class Resampled:
    """A bench whose rounds are drawn from a grid's. ``budget``: seconds; ``noise``: a factor of the residuals.

    ``load``: by how many times everything takes longer after half of the budget.
    """

    def __init__(self, grid: Grid, *, budget: float, seed: int, noise: float = 1.0, load: float = 1.0):
        self._grid, self._budget, self._noise, self._load = grid, budget, noise, load
        self._random = random.Random(seed)
        self._took: dict[Variant, list[float]] = {BASE: [min(grid.seconds[BASE])]}  # again and again, in warm ranks
        self._examined: dict[str, set[Variant]] = {"facts": {BASE}, "steps": set(), "proof": set()}
        self._own: list[float] = []  # of the user's own configuration, before anything is decided
        self.spent = 0.0

    def prepare(self) -> None:
        """The user's own configuration against itself, as a tuning begins. Raises BudgetTooSmall."""
        seconds = self._seconds_of(BASE)
        self.spent = 5 * seconds  # facts, two trials, and two timed runs
        if self.spent + LEAST_RUNS * seconds > self._budget:
            raise BudgetTooSmall
        self._own = [self._log_seconds(BASE), self._log_seconds(BASE)]

    @property
    def scale(self) -> float:
        return scale_of([one - other for one, other in pairwise(self._own)])

    @property
    def left(self) -> float:
        return 1 - self.spent / self._budget

    def share(self, candidates: Sequence[Variant]) -> float:
        return sum(map(self._seconds_of, candidates)) / self._budget

    def round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        if self.share(candidates) > self.left:
            raise TimeSpent
        drift = self._random.choice(self._grid.drifts)
        times = {each: drift + self._run(each) for each in candidates}
        if purpose == SCREEN and BASE in times:
            self._own.append(times[BASE])
        return {each: time for each, time in times.items() if each in self._grid.levels}

    def expected(self, candidate: Variant) -> str:
        return self._grid.classes.get(candidate) or SAME

    def is_costly(self, candidate: Variant) -> bool:
        return self._seconds_of(candidate) > COSTLY * self._budget

    def numerics(self, candidate: Variant) -> str | None:
        self._examine("facts", candidate, 1)
        self._examine("steps", BASE, 2)  # once, in the run's own precision and in double precision
        self._examine("steps", candidate, 2)
        return self._grid.classes[candidate]

    def is_proved(self, candidate: Variant) -> bool:
        self._examine("proof", candidate, 1)
        return True

    def _examine(self, what: str, variant: Variant, runs: int) -> None:
        """Runs that are made once for each configuration. Raises TimeSpent."""
        if variant not in self._examined[what]:
            if self.share([variant] * runs) > self.left:
                raise TimeSpent
            self._examined[what].add(variant)
            for _ in range(runs):
                self._run(variant)

    def _run(self, variant: Variant) -> float:
        """The logarithm of the seconds of an update, for what a run costs; infinite if it fails."""
        grid, drawn = self._grid, self._random
        lost, longer = drawn.choice(grid.stalls) if drawn.random() < grid.stalled else (0.0, 1.0)
        took = self._slower * longer * drawn.choice(grid.seconds[variant] or grid.seconds[BASE])
        self._took.setdefault(variant, []).append(took)
        self.spent += took
        return self._log_seconds(variant) + lost if variant in grid.levels else math.inf

    def _log_seconds(self, variant: Variant) -> float:
        residual = self._noise * self._slower * self._random.choice(self._grid.residuals[variant])
        return self._grid.levels[variant] + residual + math.log(self._slower)

    def _seconds_of(self, variant: Variant) -> float:
        return fmean(self._took.get(variant, self._took[BASE])[-5:])

    @property
    def _slower(self) -> float:
        return self._load if self.left < 0.5 else 1.0
