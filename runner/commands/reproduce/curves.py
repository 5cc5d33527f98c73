"""Compares the tables of two runs row by row."""

import math
from collections.abc import Callable, Iterable

from manyheads.runner.commands.reproduce.recorded import Past
from manyheads.runner.report.load_run import Columns, Run
from manyheads.runner.report.rounding import ComparedValue, paired, relative_difference
from manyheads.runner.report.shown_metric import is_share
from manyheads.runner.run.json_types import ResultJson

STEP_VALUES = ("loss", "grad_norm")
NO_SCORES = ("val_seconds", "val_samples")


def pairs(recorded: Past, now: Run, *, resumed: bool = False) -> list[ComparedValue]:
    """Every value that both runs measured, in the order of steps.

    resumed: whether the new run resumed from a checkpoint of the recorded one, so that its first row may cover fewer
    updates.
    """
    found = [*_of_steps(recorded.steps, now.steps, resumed), *_of_epochs(recorded, now.epochs)]
    measured = [pair for pair in found if not (math.isnan(pair.recorded) and math.isnan(pair.now))]
    return sorted(measured, key=lambda pair: pair.step)


def evaluated(recorded: ResultJson, now: ResultJson) -> list[ComparedValue]:
    """The evaluation metrics in two runs' result.json."""
    found, samples = [], float(recorded["metrics"].get("val_samples") or math.nan)
    for name in filter(is_score, recorded["metrics"]):
        a, b = (content["metrics"].get(name) for content in (recorded, now))
        if a is not None and b is not None:
            compare = _comparison(samples if is_share(name, recorded) else None)
            found.append(ComparedValue(name, recorded["steps"], a, b, compare(a, b, 0.0)))
    return found


def is_score(column: str) -> bool:
    """Whether a column of epochs.csv is a loss or metric of the evaluation."""
    return column.startswith("val_") and column not in NO_SCORES


def farthest(found: Iterable[ComparedValue]) -> ComparedValue | None:
    """The pair of values with the largest relative difference, the first of several; None if there are none."""
    return max(found, key=lambda pair: pair.relative, default=None)


def _of_steps(recorded: Columns, now: Columns, resumed: bool) -> list[ComparedValue]:
    """Pairs from rows of steps.csv that cover the same updates: a row has means over those since the row before."""
    before, previous = _predecessors(recorded), _predecessors(now)
    alike = {
        step
        for step in previous
        if step in before and (previous[step] == before[step] or (resumed and previous[step] is None))
    }
    return [pair for name in STEP_VALUES for pair in paired(name, recorded, now, steps=alike)]


def _of_epochs(recorded: Past, now: Columns) -> list[ComparedValue]:
    """Pairs from rows of epochs.csv that end at the same step."""
    table = recorded.epochs
    samples = min(table.get("val_samples", []), default=math.nan)
    pairs: list[ComparedValue] = []
    for name in ("train_loss", *filter(is_score, table)):
        compare = _comparison(samples if is_share(name, recorded.result) else None)
        pairs += paired(name, table, now, compare=compare)
    return pairs


def _comparison(samples: float | None) -> Callable[[float, float, float], float]:
    """The function that compares two values.

    A percentage of ``samples`` counts as equal if one sample differs: rounding may decide how it is classified.
    """

    def shares(a: float, b: float, _: float) -> float:
        apart = abs(a - b) / 100
        return 0.0 if apart * (samples or 0.0) < 1.5 else apart

    return relative_difference if samples is None else shares


def _predecessors(table: Columns) -> dict[float, float | None]:
    """The step of the row before, by each row's step; None for the first row."""
    steps = table.get("step", [])
    return dict(zip(steps, [None, *steps], strict=False))
