"""How far two runs' values are apart, and whether rounding alone can have done that."""

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from manyheads.runner.report.load_run import Columns

FIRST_ROWS = 5
STEADY_STEPS, GROWTH = 20, 1.5  # rounding is amplified: from then on by half at each step, seen at high rates
FLOOR = 1e-2  # of a first or largest value: what is smaller is measured by this, being mostly rounding


@dataclass(frozen=True)
class Pair:
    """One value in both runs. ``relative``: how far they are apart; ``row``: of its table, among those in common."""

    what: str
    step: int
    recorded: float
    now: float
    relative: float
    row: int = 0

    @property
    def exact(self) -> bool:
        """The same to the last digit."""
        return is_same(self.recorded, self.now)

    @property
    def percent(self) -> str:
        """How far they are apart."""
        return f"{100 * self.relative:.2g} %" if math.isfinite(self.relative) else "one of them is not finite"

    def __str__(self) -> str:
        """As in «loss at step 40: 2.1 where 2.0 was recorded»."""
        return f"{self.what} at step {self.step}: {self.now:.10g} where {self.recorded:.10g} was recorded"

    def as_dict(self) -> dict[str, Any]:
        """For result.json."""
        relative = self.relative if math.isfinite(self.relative) else None
        return {"what": self.what, "step": self.step, "recorded": self.recorded, "now": self.now, "relative": relative}


def is_same(a: float, b: float) -> bool:
    """Two NaN are the same."""
    return a == b or (math.isnan(a) and math.isnan(b))


def relative(difference: float, size: float) -> float:
    """A difference in units of ``size``; inf where one of them is not finite, or there is no size to measure by."""
    if difference == 0:
        return 0.0
    return difference / size if math.isfinite(difference) and 0 < size < math.inf else math.inf


def relative_difference(a: float, b: float, floor: float = 0.0) -> float:
    """Relative to the larger of both, or to ``floor`` where that is larger still."""
    return 0.0 if is_same(a, b) else relative(abs(a - b), max(abs(a), abs(b), floor))


def paired(
    what: str,
    recorded: Columns,
    now: Columns,
    *,
    steps: Container[float] | None = None,
    compare: Callable[[float, float, float], float] = relative_difference,
) -> list[Pair]:
    """A column of both runs at the steps that both have, or at those of them that are among ``steps``.

    ``compare``: of the values and a floor, a hundredth of the first, for values that near zero.
    """
    before, after = (dict(zip(table.get("step", []), table.get(what, []), strict=False)) for table in (recorded, now))
    common = [step for step in after if step in before and (steps is None or step in steps)]
    first = before[common[0]] if common else 0.0
    floor = FLOOR * abs(first) if math.isfinite(first) else 0.0
    return [
        Pair(what, int(step), before[step], after[step], compare(before[step], after[step], floor), row)
        for row, step in enumerate(common)
    ]


def departure(pairs: Iterable[Pair], *, tolerance: float) -> Pair | None:
    """The first value that is farther apart than ``tolerance``."""
    return next((pair for pair in pairs if pair.relative > tolerance), None)


def is_early(pair: Pair, *, tolerance: float, since: int = 0) -> bool:
    """Whether a departure comes before rounding could have made it, as training amplifies it from step to step.

    Only the first five rows can be early, and what they allow grows with the step: with trainer.log_every=10 the fifth
    is step 50, where a high learning rate has made 1e-7 into anything. ``since``: the step at which both runs had the
    same weights.
    """
    growth = GROWTH ** min(max(0, pair.step - since - STEADY_STEPS), 200)
    return pair.row < FIRST_ROWS and pair.relative > tolerance * growth
