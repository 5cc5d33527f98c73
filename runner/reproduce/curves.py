"""Two runs' tables against each other, row by row."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from manyheads.runner.report.load_run import Columns, Run
from manyheads.runner.report.rounding import Pair, paired, relative_difference
from manyheads.runner.reproduce.recorded import Past

STEP_VALUES = ("loss", "grad_norm")
EPOCH_VALUES = ("train_loss", "val_loss", "val_acc1", "val_acc5")


def pairs(recorded: Past, now: Run, *, resumed: bool = False) -> list[Pair]:
    """Every value that both have measured, in the order of steps.

    resumed: the run of now went on from a checkpoint of the recorded one, so that its first row has a beginning there.
    """
    found = [*_of_steps(recorded.steps, now.steps, resumed), *_of_epochs(recorded.epochs, now.epochs)]
    measured = [pair for pair in found if not (math.isnan(pair.recorded) and math.isnan(pair.now))]
    return sorted(measured, key=lambda pair: pair.step)


def evaluated(recorded: dict[str, Any], now: dict[str, Any]) -> list[Pair]:
    """The evaluation metrics in two runs' result.json."""
    found, samples = [], float(recorded["metrics"].get("val_samples") or math.nan)
    for name in ("val_loss", "val_acc1", "val_acc5"):
        a, b = (content["metrics"].get(name) for content in (recorded, now))
        if a is not None and b is not None:
            found.append(Pair(name, recorded["steps"], a, b, _comparison(name, samples)(a, b, 0.0)))
    return found


def farthest(found: Iterable[Pair]) -> Pair | None:
    """The pair that is farthest apart; of several the first."""
    return max(found, key=lambda pair: pair.relative, default=None)


def _of_steps(recorded: Columns, now: Columns, resumed: bool) -> list[Pair]:
    """Rows over the same updates: each holds means over those since the row before."""
    before, previous = _predecessors(recorded), _predecessors(now)
    alike = {
        step
        for step in previous
        if step in before and (previous[step] == before[step] or (resumed and previous[step] is None))
    }
    return [pair for name in STEP_VALUES for pair in paired(name, recorded, now, steps=alike)]


def _of_epochs(recorded: Columns, now: Columns) -> list[Pair]:
    """Rows that end at the same step."""
    samples = min(recorded.get("val_samples", []), default=math.nan)
    return [pair for name in EPOCH_VALUES for pair in paired(name, recorded, now, compare=_comparison(name, samples))]


def _comparison(name: str, samples: float) -> Callable[[float, float, float], float]:
    """How values of this name are compared. An accuracy may differ by one sample, which is decided by a hair."""

    def accuracies(a: float, b: float, _: float) -> float:
        apart = abs(a - b) / 100
        return 0.0 if apart * samples < 1.5 else apart

    return accuracies if "acc" in name else relative_difference


def _predecessors(table: Columns) -> dict[float, float | None]:
    """Each row's step, and that of the row before."""
    steps = table.get("step", [])
    return dict(zip(steps, [None, *steps], strict=False))
