"""Chooses the metric that a comparison shows: the monitored one, or the task's first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from manyheads.runner.records.load_run import Run
from manyheads.runner.run.json_types import MetricJson, ResultJson

NONE = "–"


@dataclass(frozen=True)
class ShownMetric:
    """``name``: as in the column ``val_<name>``; ``label``: its title; ``unit``: "%" or ""; ``direction``: max, min."""

    name: str
    label: str
    unit: str
    direction: str

    @property
    def column(self) -> str:
        """The metric's column in epochs.csv, and its key in result.json."""
        return f"val_{self.name}"

    @property
    def axis(self) -> str:
        """The metric's title on an axis: the label and the unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


ACCURACY = ShownMetric("acc1", "accuracy", "%", "max")
LOSS = ShownMetric("loss", "val loss", "", "min")


def described(result: ResultJson) -> dict[str, MetricJson]:
    """The descriptions of a run's metrics, by their names."""
    return (result.get("scores") or {}).get("metrics") or {}


def metric_of(run: Run) -> ShownMetric | None:
    """A run's own metric; None if it does not name one."""
    if not (metrics := described(run.result)):
        return None
    monitored = str(run.result["scores"].get("monitor")).removeprefix("val_")
    name = monitored if monitored in metrics else next(iter(metrics))
    about = metrics[name] or {}
    return ShownMetric(name, about.get("label") or "", about.get("unit") or "", about.get("direction") or "")


def shown_metric(runs: Iterable[Run]) -> ShownMetric:
    """The metric of the first run that names one."""
    return next(filter(None, map(metric_of, runs)), ACCURACY)


def shown_objective(runs: Iterable[Run]) -> ShownMetric:
    """The metric that decides the best epoch of the first run that names one; it may be the loss."""
    monitors_loss = ((run, (run.result.get("scores") or {}).get("monitor") == LOSS.column) for run in runs)
    return next(filter(None, (LOSS if is_loss else metric_of(run) for run, is_loss in monitors_loss)), ACCURACY)


def number(value: float | None) -> str:
    """A number with three significant digits, or all before the decimal point."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == 0 else f"{value:#.3g}"


def shown_value(metric: ShownMetric, mean: float | None, spread: float | None) -> str:
    """``98.61 ± 0.30 %``: a mean with its standard deviation, in the metric's unit."""
    show: Callable[[float], str] = "{:.2f}".format if metric.unit == "%" else number
    unit = f" {metric.unit}" if metric.unit else ""
    return NONE if mean is None else f"{show(mean)}{'' if spread is None else f' ± {show(spread)}'}{unit}"


def is_share(name: str, result: ResultJson) -> bool:
    """Whether a column of epochs.csv is a percentage of samples, which changes in steps of one sample."""
    return (described(result).get(name.partition("_")[2]) or {}).get("unit") == "%"
