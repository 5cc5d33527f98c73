"""Which of its task's metrics a comparison shows: the monitored one, or the task's first."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from manyheads.runner.report.load_run import Run


@dataclass(frozen=True)
class ShownMetric:
    """``name``: as in the column ``val_<name>``; ``label``: in words; ``unit``: "%" or ""; ``direction``: max, min."""

    name: str
    label: str
    unit: str
    direction: str

    @property
    def column(self) -> str:
        """Its column in epochs.csv, and its key in result.json."""
        return f"val_{self.name}"


# Runs that don't say what they measure are older than tasks, or have failed.
ACCURACY = ShownMetric("acc1", "accuracy", "%", "max")


def metric_of(run: Run) -> ShownMetric | None:
    """The run's own; None where it does not say."""
    scores = run.result.get("scores")
    described = scores.get("metrics") if isinstance(scores, dict) else None
    if not isinstance(scores, dict) or not isinstance(described, dict) or not described:
        return None
    monitored = str(scores.get("monitor")).removeprefix("val_")
    name = monitored if monitored in described else next(iter(described))
    about: dict[str, Any] = described[name] if isinstance(described[name], dict) else {}
    return ShownMetric(name, *(str(about.get(key, "")) for key in ("label", "unit", "direction")))


def shown_metric(runs: Iterable[Run]) -> ShownMetric:
    """That of the first run that says."""
    return next(filter(None, map(metric_of, runs)), ACCURACY)


def is_share(name: str, result: dict[str, Any]) -> bool:
    """Whether a column of epochs.csv is a share of samples in percent, which one sample more or less changes."""
    metrics = (result.get("scores") or {}).get("metrics") or {ACCURACY.name: {"unit": "%"}, "acc5": {"unit": "%"}}
    return (metrics.get(name.partition("_")[2]) or {}).get("unit") == "%"
