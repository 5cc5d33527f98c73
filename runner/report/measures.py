"""The measurements of a run, by the same rules for all runs."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.records.load_run import Run
from manyheads.runner.records.shown_metric import ACCURACY, ShownMetric


@dataclass(frozen=True)
class Measures:
    """Measurements of one run, or of a job's repeats; None if missing. Memory is in MB.

    ``metric``: the task's metric that the comparison shows, such as the accuracy, after the last epoch; ``objective``:
    the value of checkpoint.monitor in the best epoch; both are means over several ``runs``.

    ``seconds``: the median per epoch, ``low`` and ``high`` its range: over epochs, or over repeats; ``throughput``: an
    epoch's samples / ``seconds``; ``with_first``: there was only one epoch, so its warm-up is included; ``memory``: the
    peak of each device; ``held``: parameters and optimizer state between two updates, for each rank.
    """

    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    with_first: bool = False
    throughput: float | None = None
    data_share: float | None = None
    memory: tuple[float, ...] = ()
    held: tuple[float, ...] = ()
    metric: float | None = None
    metric_spread: float | None = None
    objective: float | None = None
    objective_spread: float | None = None
    runs: int = 1
    best_metric: float | None = None
    loss: float | None = None
    train_loss: float | None = None
    train_seconds: float | None = None
    ranks: int | None = None
    devices: int | None = None


def measure(run: Run, metric: ShownMetric = ACCURACY, objective: ShownMetric = ACCURACY) -> Measures:
    """Measure a run. Leaves out the first epoch (start-up, choice of algorithms) and incomplete ones."""
    epochs, with_first = timed_epochs(run)
    seconds = [run.epochs["train_seconds"][index] for index in epochs]
    metrics = run.result.get("metrics") or {}
    return Measures(
        seconds=_median(seconds),
        low=min(seconds, default=None),
        high=max(seconds, default=None),
        with_first=with_first,
        throughput=_throughput(run, epochs, seconds) or _number(run.result.get("samples_per_second")),
        data_share=_data_share(run, {run.epochs["epoch"][index] for index in epochs}),
        memory=_memory(run),
        held=_held(run),
        metric=_number(metrics.get(metric.column, last(run, metric.column))),
        objective=_objective(run, objective),
        best_metric=_number((run.result.get("best") or {}).get(metric.column)),
        loss=_number(metrics.get("val_loss", last(run, "val_loss"))),
        train_loss=_number(metrics.get("train_loss", last(run, "train_loss"))),
        train_seconds=_number(run.result.get("train_seconds")) or sum(run.epochs.get("train_seconds", [])) or None,
        ranks=(count := run.result.get("world_size") or run.provenance.get("ranks")),
        devices=_devices(run, count),
    )


def timed_epochs(run: Run) -> tuple[list[int], bool]:
    """Rows of epochs.csv that count, and whether they include the first epoch because there are no others."""
    steps, seconds = run.epochs.get("step", []), run.epochs.get("train_seconds", [])
    updates = [now - before for before, now in zip([0, *steps], steps, strict=False)]
    complete = [i for i, count in enumerate(updates) if count == max(updates) and math.isfinite(seconds[i])]
    later = [index for index in complete if run.epochs["epoch"][index] > 1]
    return (later, False) if later else (complete, bool(complete))


def _throughput(run: Run, epochs: Sequence[int], seconds: Sequence[float]) -> float | None:
    """An epoch's samples over the median of its seconds, so that efficiency and speed-up agree."""
    rates = run.epochs.get("samples_per_second", [])
    counts = [rates[index] * run.epochs["train_seconds"][index] for index in epochs] if rates else []
    return _ratio(_median(_finite(counts)), _median(seconds))


def _objective(run: Run, objective: ShownMetric) -> float | None:
    """The objective in the best epoch so far, also of a run in progress."""
    for result in (run.result.get("best") or {}, run.result.get("metrics") or {}):
        if (value := result.get(objective.column)) is not None:
            return value
    best = min if objective.direction == "min" else max
    return best(_finite(run.epochs.get(objective.column, [])), default=None)


def last(run: Run, column: str) -> float | None:
    """The last value of a column in epochs.csv, from an epoch that has one."""
    return next(reversed(_finite(run.epochs.get(column, []))), None)


def _data_share(run: Run, epochs: set[float]) -> float | None:
    """The fraction of the training time spent waiting for data."""
    steps = run.steps
    if not {"epoch", "samples", "samples_per_second", "data_fraction"} <= steps.keys():
        return None
    waited = total = 0.0
    for epoch, before, now, rate, share in zip(
        steps["epoch"],
        [0.0, *steps["samples"]],
        steps["samples"],
        steps["samples_per_second"],
        steps["data_fraction"],
        strict=False,
    ):
        if (not epochs or epoch in epochs) and rate > 0 and math.isfinite(share):
            seconds = (now - before) / rate
            waited, total = waited + seconds * share, total + seconds
    return waited / total if total else None


def _memory(run: Run) -> tuple[float, ...]:
    """Peak memory of each device, or of each rank on CPUs, in MB."""
    if (peaks := run.result.get("peak_memory_mb")) is None:
        peak = last(run, "peak_memory_mb")
        return () if peak is None else (peak,)
    return tuple(_finite(value for value in peaks if isinstance(value, (int, float))))


def _held(run: Run) -> tuple[float, ...]:
    """Memory held between updates of each rank, in MB; () if it was not recorded."""
    held = run.result.get("held_bytes")
    parts = [held.get("parameters"), held.get("optimizer")] if isinstance(held, dict) else [None]
    if not all(isinstance(part, list) and all(isinstance(size, int) for size in part) for part in parts):
        return ()
    return tuple(sum(sizes) / 2**20 for sizes in zip(*parts, strict=False))


def _devices(run: Run, ranks: int | None) -> int | None:
    """Number of devices in use: a rank may have several."""
    gpus = len(run.provenance.get("devices") or [0]) if run.config.get("trainer.device") == "cuda" else 0
    return run.declared("parallel").devices(ranks=ranks, gpus=gpus)


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) else None


def average(measured: Sequence[Measures]) -> Measures:
    """Combine the repeats, seeds or folds of a job.

    Times and memory become medians, lowest and highest values; losses and metrics means with standard deviations.
    """
    if len(measured) < 2:
        return measured[0] if measured else Measures()
    seconds = [m.seconds for m in measured if m.seconds is not None]
    samples = [m.throughput * m.seconds for m in measured if m.throughput and m.seconds]
    metric, spread = _mean(m.metric for m in measured)
    objective, objective_spread = _mean(m.objective for m in measured)
    return Measures(
        seconds=_median(seconds),
        low=min(seconds, default=None),
        high=max(seconds, default=None),
        with_first=any(m.with_first for m in measured),
        throughput=_ratio(_median(samples), _median(seconds)) or _median(m.throughput for m in measured),
        data_share=_median(m.data_share for m in measured),
        memory=tuple(max(peaks) for peaks in zip(*(m.memory for m in measured), strict=False)),
        held=measured[0].held,
        metric=metric,
        metric_spread=spread,
        objective=objective,
        objective_spread=objective_spread,
        runs=len(measured),
        best_metric=_mean(m.best_metric for m in measured)[0],
        loss=_mean(m.loss for m in measured)[0],
        train_loss=_mean(m.train_loss for m in measured)[0],
        train_seconds=_median(m.train_seconds for m in measured),
        ranks=measured[0].ranks,
        devices=measured[0].devices,
    )


def _median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


def _mean(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """The mean, and the standard deviation (n - 1) of several values. NaN if a value is not finite."""
    numbers = [value for value in values if value is not None]
    if not all(map(math.isfinite, numbers)):
        return math.nan, None
    return (statistics.fmean(numbers) if numbers else None), (statistics.stdev(numbers) if len(numbers) > 1 else None)


def _ratio(value: float | None, of: float | None) -> float | None:
    return value / of if value and of else None
