"""Two runs' tables against each other, row by row: where they depart, and how far they are apart at most."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from manyheads.runner.report.agreement import FIRST_ROWS, GROWTH, STEADY_STEPS
from manyheads.runner.report.reading import Columns

STEP_VALUES = ("loss", "grad_norm")
EPOCH_VALUES = ("train_loss", "val_loss", "val_acc1", "val_acc5")


class Tables(Protocol):
    """Whatever has a run's two tables, by column."""

    @property
    def steps(self) -> Columns: ...

    @property
    def epochs(self) -> Columns: ...


@dataclass(frozen=True)
class Pair:
    """One value in both runs. ``relative``: how far they are apart; ``exact``: the same to the last digit."""

    what: str
    step: int
    recorded: float
    now: float
    relative: float
    row: int = 0  # of its table, among those in common

    @property
    def exact(self) -> bool:
        return self.recorded == self.now or (math.isnan(self.recorded) and math.isnan(self.now))

    def __str__(self) -> str:
        """As in «loss at step 40: 2.1 where 2.0 was recorded»."""
        return f"{self.what} at step {self.step}: {self.now:.10g} where {self.recorded:.10g} was recorded"

    def as_dict(self) -> dict[str, Any]:
        """For result.json."""
        return {
            "what": self.what,
            "step": self.step,
            "recorded": self.recorded,
            "now": self.now,
            "relative": self.relative if math.isfinite(self.relative) else None,
        }


def pairs(recorded: Tables, now: Tables, *, resumed: bool = False) -> list[Pair]:
    """Every value that both have, in the order of steps.

    resumed: the run of now went on from a checkpoint of the recorded one, so that its first row has a beginning there.
    """
    found = chain(_of_steps(recorded.steps, now.steps, resumed), _of_epochs(recorded.epochs, now.epochs))
    return sorted(found, key=lambda pair: pair.step)


def evaluated(recorded: dict[str, Any], now: dict[str, Any]) -> list[Pair]:
    """The evaluation metrics in two runs' result.json."""
    found, samples = [], float(recorded["metrics"].get("val_samples") or math.nan)
    for name in ("val_loss", "val_acc1", "val_acc5"):
        a, b = (content["metrics"].get(name) for content in (recorded, now))
        if a is not None and b is not None:
            compare = _accuracies(samples) if "acc" in name else _relative
            found.append(Pair(name, recorded["steps"], a, b, compare(a, b, 0.0)))
    return found


def farthest(found: Iterable[Pair]) -> Pair | None:
    """The pair that is farthest apart; of several the first."""
    return max(found, key=lambda pair: pair.relative, default=None)


def departure(found: Iterable[Pair], *, tolerance: float) -> Pair | None:
    """The first value that is farther apart than ``tolerance``."""
    return next((pair for pair in found if pair.relative > tolerance), None)


def is_early(pair: Pair, *, tolerance: float, since: int = 0) -> bool:
    """Whether a departure comes before rounding could have made it, as training amplifies it from step to step.

    since: the step at which both runs had the same weights. Source of the bounds: manyheads.runner.report.agreement.
    """
    growth = GROWTH ** min(max(0, pair.step - since - STEADY_STEPS), 200)
    return pair.row < FIRST_ROWS and pair.relative > tolerance * growth


def _of_steps(recorded: Columns, now: Columns, resumed: bool) -> Iterator[Pair]:
    """Rows over the same updates: each holds means over those since the row before."""
    before, previous = _predecessors(recorded), _predecessors(now)
    common = [
        step
        for step in previous
        if step in before and (previous[step] == before[step] or (resumed and previous[step] is None))
    ]
    for name in STEP_VALUES:
        yield from _paired(name, common, recorded, now, _relative)


def _of_epochs(recorded: Columns, now: Columns) -> Iterator[Pair]:
    """Rows that end at the same step. An accuracy may differ by one sample, which is decided by a hair."""
    ends = set(recorded.get("step", []))
    common = [step for step in now.get("step", []) if step in ends]
    smallest = min(recorded.get("val_samples", []), default=math.nan)
    for name in EPOCH_VALUES:
        compare = _accuracies(smallest) if "acc" in name else _relative
        yield from _paired(name, common, recorded, now, compare)


def _paired(
    name: str, common: list[float], recorded: Columns, now: Columns, compare: Callable[[float, float, float], float]
) -> Iterator[Pair]:
    if not common:
        return
    before, after = (dict(zip(table["step"], table[name], strict=False)) for table in (recorded, now))
    first = before[common[0]]
    floor = 0.01 * abs(first) if math.isfinite(first) else 0.0  # of a value that nears zero
    for row, step in enumerate(common):
        a, b = before[step], after[step]
        if not (math.isnan(a) and math.isnan(b)):  # else it was not measured
            yield Pair(name, int(step), a, b, compare(a, b, floor), row)


def _relative(a: float, b: float, floor: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return 0.0 if a == b else math.inf
    return abs(a - b) / max(abs(a), abs(b), floor, 1e-300)


def _accuracies(samples: float) -> Callable[[float, float, float], float]:
    def compare(a: float, b: float, _: float) -> float:
        apart = abs(a - b) / 100
        return 0.0 if apart * samples < 1.5 else apart

    return compare


def _predecessors(table: Columns) -> dict[float, float | None]:
    """Each row's step, and that of the row before."""
    steps = table.get("step", [])
    return dict(zip(steps, [None, *steps], strict=False))
