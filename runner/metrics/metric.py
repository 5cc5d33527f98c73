"""Metrics: functions of statistics that are summed over batches and ranks first. Their base class, and a run's own."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import arguments_of, call, locate, signature
from manyheads.runner.option.tree import Section
from manyheads.runner.run.json_types import MetricJson

if TYPE_CHECKING:
    from torch import Tensor

    from manyheads.runner.task.rank.task import Task


Direction = Literal["max", "min"]


class Metric:
    """A named number, with the direction that is better. Tables call it ``train_<name>`` and ``val_<name>``.

    ``label``: its name in words; ``short``: an abbreviation for the live line; ``unit``: "%" or none; ``is_shown``:
    whether the terminal shows it, in addition to the tables. ``shapes``: the shape of each statistic that it needs, by
    name; () for a single number. ``family``: metrics with the same family and the same shapes have the same statistics,
    which are then computed once for all of them; None for none. ``version``: raised when the same outputs give another
    value; values of different versions are not compared.
    """

    direction: Direction = "max"
    version: int = 1
    shapes: Mapping[str, tuple[int, ...]] = {}
    is_collected = False
    is_shown = True
    family: str | None = None

    def __init__(self, name: str, *, label: str = "", short: str = "", unit: str = ""):
        self.name, self.label, self.unit = name, label or name, unit
        self.short = short or self.label

    def statistics(self, outputs: Any, batch: Any) -> dict[str, "Tensor"]:
        """Sums over one batch, with the names and shapes in ``shapes``; computed on the device, without gradients.

        ``outputs``: what the model returned; ``batch``: what the data set's collation returned.
        """
        raise NotImplementedError

    def observe(self, outputs: Any, batch: Any) -> Any:
        """Observe a batch, without gradients. Returns tensors, nested in any way, for the statistics.

        A metric that returns something other than statistics also needs ``add_up(observed)``, which returns the
        statistics of a list of observed batches.
        """
        return self.statistics(outputs, batch)

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        """The metric of these statistics, which are float64 on the CPU; None if nothing was measured.

        They also contain the numbers "loss", the sum of the run's loss, and "counted", the number that it is averaged
        over.
        """
        raise NotImplementedError

    def text(self, value: float) -> str:
        """The value as shown on the terminal."""
        return f"{value:.2f}%" if self.unit == "%" else f"{value:.4g}"

    def live(self, value: float) -> str:
        """Abbreviated name and value, for the live line."""
        return f"{self.short} {value:.1f}%" if self.unit == "%" else f"{self.short} {value:.3g}"

    def describe(self) -> MetricJson:
        """The description in result.json, by which a report names the metric and orders runs."""
        return {"direction": self.direction, "label": self.label, "unit": self.unit, "version": self.version}


class Collected(Metric):
    """A metric that sums cannot express, such as the area under a curve, because it needs each sample's scores.

    It is measured in evaluations. Each rank keeps its samples' scores by sample id, 4 bytes per class; they are
    gathered a few classes at a time. ``at_most``: megabytes per rank, beyond which the run stops with an error.
    """

    is_collected = True

    def __init__(self, name: str, *, at_most: float = 1024, **names: str):
        super().__init__(name, **names)
        self.at_most = at_most

    def of_class(self, scores: "np.ndarray", is_it: "np.ndarray") -> float | None:
        """The metric of one class, from its log-odds for each sample and a mask (N,) of the samples that belong to it.

        Samples are in the order of their ids, whichever rank evaluated them. Returns None if the class has no value.
        """
        raise NotImplementedError

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        return None  # while training, where nothing is kept

    def over_classes(self, values: list[float | None]) -> float | None:
        """The metric from the values of all classes: the mean over those that have one."""
        defined = [value for value in values if value is not None]
        return sum(defined) / len(defined) if defined else None


class Share(Metric):
    """One statistic as a percentage of another, such as the samples whose class was predicted correctly."""

    def __init__(self, name: str, part: str, whole: str, **names: str):
        super().__init__(name, unit="%", **names)
        self.part, self.whole = part, whole
        self.shapes = {part: (), whole: ()}

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        total = float(sums[self.whole])
        return 100 * float(sums[self.part]) / total if total else None


def each_once(ranks: Sequence[tuple[np.ndarray, ...]]) -> tuple[Any, ...]:
    """The samples of all ranks in the order of their ids, each once.

    ranks: for each rank the ids, (n,), and arrays of the same length. Returns the ids, and the arrays in that order.
    """
    columns = [np.concatenate(parts) for parts in zip(*ranks, strict=True)]
    ids, chosen = np.unique(columns[0], return_index=True)
    return ids, *(column[chosen] for column in columns[1:])


def build_metrics(section: Mapping[str, Section], task: "Task", num_classes: int | None) -> list[Metric]:
    """Build the metrics, passing each its name, and the task and the number of classes if it accepts them.

    Raises ConfigurationError for a class that is not a Metric.
    """
    metrics = []
    for name, entry in section.items():
        group, target = f"metrics.{name}", entry["_target_"]
        kind = locate(group, target)
        accepts = signature(kind).parameters
        offered = {"task": task, "num_classes": num_classes}
        given = {"name": name} | {key: value for key, value in offered.items() if key in accepts}
        metric = call(group, target, kind, **given | arguments_of(group, entry, without=()))
        if not isinstance(metric, Metric):
            raise ConfigurationError.at(
                f"{group}._target_", target, f" is not a Metric. Derive the class from {Metric.__module__}.Metric."
            )
        metrics.append(metric)
    return metrics
