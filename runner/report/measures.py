"""What one run measured, by one rule for all runs."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.report.load_run import Run


@dataclass(frozen=True)
class Measures:
    """Numbers of one run, or of a job's repeats; None where there is none. Accuracies are percent, memory is MB.

    ``low`` and ``high`` enclose ``seconds``, the median per epoch: over its epochs, or over repeats. ``throughput``:
    an epoch's samples over ``seconds``. ``with_first``: there was one epoch only, so that its warm-up is in it.
    ``memory``: one value for each device.
    """

    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    with_first: bool = False
    throughput: float | None = None
    data_share: float | None = None
    memory: tuple[float, ...] = ()
    accuracy: float | None = None
    accuracy_spread: float | None = None
    best_accuracy: float | None = None
    loss: float | None = None
    train_loss: float | None = None
    train_seconds: float | None = None
    ranks: int | None = None
    devices: int | None = None


def measure(run: Run) -> Measures:
    """Epochs count without the first one (start-up, choice of algorithms) and without one that was cut short."""
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
        accuracy=_number(metrics.get("val_acc1", last(run, "val_acc1"))),
        best_accuracy=_number((run.result.get("best") or {}).get("val_acc1")),
        loss=_number(metrics.get("val_loss", last(run, "val_loss"))),
        train_loss=_number(metrics.get("train_loss", last(run, "train_loss"))),
        train_seconds=_number(run.result.get("train_seconds")) or sum(run.epochs.get("train_seconds", [])) or None,
        ranks=(count := run.result.get("world_size") or run.provenance.get("ranks")),
        devices=_devices(run, count),
    )


def timed_epochs(run: Run) -> tuple[list[int], bool]:
    """Rows of epochs.csv that count, and whether the first epoch is among them for want of others."""
    steps, seconds = run.epochs.get("step", []), run.epochs.get("train_seconds", [])
    updates = [now - before for before, now in zip([0, *steps], steps, strict=False)]
    whole = [i for i, count in enumerate(updates) if count == max(updates) and math.isfinite(seconds[i])]
    later = [index for index in whole if run.epochs["epoch"][index] > 1]
    return (later, False) if later else (whole, bool(whole))


def _throughput(run: Run, epochs: Sequence[int], seconds: Sequence[float]) -> float | None:
    """An epoch's samples over the median of its seconds, so that efficiency and speed-up tell the same."""
    rates = run.epochs.get("samples_per_second", [])
    counts = [rates[index] * run.epochs["train_seconds"][index] for index in epochs] if rates else []
    return _ratio(_median(_finite(counts)), _median(seconds))


def last(run: Run, column: str) -> float | None:
    """The last value in epochs.csv, of an epoch that had one."""
    return next(reversed(_finite(run.epochs.get(column, []))), None)


def _data_share(run: Run, epochs: set[float]) -> float | None:
    """The part of the training time that ranks waited for data."""
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
    """One value for each device, or rank on CPU."""
    peaks = run.result.get("peak_memory_mb")
    if peaks is None:
        peak = last(run, "peak_memory_mb")
        return () if peak is None else (peak,)
    return tuple(_finite(value for value in peaks if isinstance(value, (int, float))))


def _devices(run: Run, ranks: int | None) -> int | None:
    """How many devices worked: one rank may have several."""
    gpus = len(run.provenance.get("devices") or [0]) if run.config.get("trainer.device") == "cuda" else 0
    return run.declared("parallel").devices(ranks=ranks, gpus=gpus)


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) else None


def fold(measured: Sequence[Measures]) -> Measures:
    """Repeats of one job as one: medians, lowest and highest; the accuracy is a mean with its standard deviation."""
    if len(measured) < 2:
        return measured[0] if measured else Measures()
    seconds = [m.seconds for m in measured if m.seconds is not None]
    samples = [m.throughput * m.seconds for m in measured if m.throughput and m.seconds]
    accuracies = [m.accuracy for m in measured if m.accuracy is not None]
    return Measures(
        seconds=_median(seconds),
        low=min(seconds, default=None),
        high=max(seconds, default=None),
        with_first=any(m.with_first for m in measured),
        throughput=_ratio(_median(samples), _median(seconds)) or _median(m.throughput for m in measured),
        data_share=_median(m.data_share for m in measured),
        memory=tuple(max(peaks) for peaks in zip(*(m.memory for m in measured), strict=False)),
        accuracy=statistics.fmean(accuracies) if accuracies else None,
        accuracy_spread=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        best_accuracy=_median(m.best_accuracy for m in measured),
        loss=_median(m.loss for m in measured),
        train_loss=_median(m.train_loss for m in measured),
        train_seconds=_median(m.train_seconds for m in measured),
        ranks=measured[0].ranks,
        devices=measured[0].devices,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _ratio(value: float | None, of: float | None) -> float | None:
    return value / of if value and of else None
