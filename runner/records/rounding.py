"""Measures how much two runs' values differ, and judges whether rounding alone can explain it."""

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from manyheads.runner.records.load_run import Columns

FIRST_ROWS = 5
STEADY_STEPS, GROWTH = 20, 1.5  # after these steps, rounding errors grow by half per step
FLOOR = 1e-2  # of a first or largest value; smaller values, mostly rounding, are compared relative to this


@dataclass(frozen=True)
class ComparedValue:
    """A value in both runs. ``relative``: their relative difference; ``row``: its number among common rows."""

    what: str
    step: int
    recorded: float
    now: float
    relative: float
    row: int = 0

    @property
    def exact(self) -> bool:
        """Whether both values are the same to the last digit."""
        return is_same(self.recorded, self.now)

    @property
    def percent(self) -> str:
        """The relative difference as text, in percent."""
        return f"{100 * self.relative:.2g} %" if math.isfinite(self.relative) else "one of them is not finite"

    def __str__(self) -> str:
        """Such as «loss at step 40: 2.1 where 2.0 was recorded»."""
        return f"{self.what} at step {self.step}: {self.now:.10g} where {self.recorded:.10g} was recorded"

    def as_dict(self) -> dict[str, Any]:
        """The pair as a dictionary for result.json."""
        relative = self.relative if math.isfinite(self.relative) else None
        return {"what": self.what, "step": self.step, "recorded": self.recorded, "now": self.now, "relative": relative}


def is_same(a: float, b: float) -> bool:
    """Whether two values are equal, or both NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def relative(difference: float, size: float) -> float:
    """``difference`` / ``size``; inf if one of them is not finite, or if ``size`` is zero."""
    if difference == 0:
        return 0.0
    return difference / size if math.isfinite(difference) and 0 < size < math.inf else math.inf


def relative_difference(a: float, b: float, floor: float = 0.0) -> float:
    """The difference relative to the larger of both values, or to ``floor`` if that is larger."""
    return 0.0 if is_same(a, b) else relative(abs(a - b), max(abs(a), abs(b), floor))


def paired(
    what: str,
    recorded: Columns,
    now: Columns,
    *,
    steps: Container[float] | None = None,
    compare: Callable[[float, float, float], float] = relative_difference,
) -> list[ComparedValue]:
    """Pair a column's values in both runs, at their common steps, or those of them in ``steps``.

    ``compare``: the relative difference, given both values and a floor, a hundredth of the first value, for values near
    zero.
    """
    before, after = (dict(zip(table.get("step", []), table.get(what, []), strict=False)) for table in (recorded, now))
    common = [step for step in after if step in before and (steps is None or step in steps)]
    first = before[common[0]] if common else 0.0
    floor = FLOOR * abs(first) if math.isfinite(first) else 0.0
    return [
        ComparedValue(what, int(step), before[step], after[step], compare(before[step], after[step], floor), row)
        for row, step in enumerate(common)
    ]


def departure(pairs: Iterable[ComparedValue], *, tolerance: float) -> ComparedValue | None:
    """The first pair that differs by more than ``tolerance``; None if none does."""
    return next((pair for pair in pairs if pair.relative > tolerance), None)


def is_early(pair: ComparedValue, *, tolerance: float, since: int = 0, exact: bool = True) -> bool:
    """Whether a departure is too early to be explained by rounding, which training amplifies from step to step.

    Only the first five rows can be early, with a tolerance that grows with the step: with trainer.log_every=10 the
    fifth row is step 50, by which a high learning rate may have amplified 1e-7 to any size. ``since``: the step at
    which both runs had the same weights. ``exact``: whether runs can be repeated to the last bit. Otherwise rounding
    differs even between two runs of the same config, and only the first update can be early: in a ResNet-18 on a GPU,
    such runs differed by 1e-7 in the second update and by 1e-2 in the fifth.
    """
    if not exact and pair.step > since + 1:
        return False
    growth = GROWTH ** min(max(0, pair.step - since - STEADY_STEPS), 200)
    return pair.row < FIRST_ROWS and pair.relative > tolerance * growth
