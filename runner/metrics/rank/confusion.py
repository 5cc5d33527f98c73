"""Metrics of a confusion matrix, which is summed over batches and ranks: exact, with (classes, classes) numbers.

Classes that neither occur nor are predicted have no value, as in scikit-learn.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Metric

if TYPE_CHECKING:
    from manyheads.runner.task.rank.task import Task

BYTES = 38  # of a cell, with the copies that are added up, exchanged and divided


def confusion(predicted: Tensor, targets: Tensor, classes: int) -> Tensor:
    """How often each class (row) was predicted as each class (column): (classes, classes) int64.

    predicted: the class numbers, (N,); targets: (N,), those below 0 or beyond the classes are ignored.
    """
    ignored = classes**2
    cells = torch.where(targets >= 0, targets * classes + predicted, ignored).clamp_(max=ignored)
    # Not bincount, for whose size a GPU would be waited for.
    counts = torch.zeros(ignored + 1, dtype=torch.long, device=cells.device)
    return counts.index_add_(0, cells, torch.ones_like(cells))[:ignored].view(classes, classes)


class OfConfusion(Metric):
    """Base class of metrics of a confusion matrix: a number for each class, and their mean, in percent.

    ``at_most``: megabytes of a rank that the matrix and its copies may take.
    """

    family = "confusion"

    def __init__(
        self, name: str, *, num_classes: int | None, task: "Task | None" = None, at_most: float = 1024, **names: str
    ):
        super().__init__(name, unit="%", **names)
        if num_classes is None:
            raise ConfigurationError(
                f"metrics.{name}: the number of classes is unknown. Set metrics.{name}.num_classes.",
                key=f"metrics.{name}",
            )
        if (size := BYTES * num_classes**2 / 2**20) > at_most:
            raise ConfigurationError(
                f"metrics.{name}: the confusion matrix of {num_classes} classes takes some {size:.0f} MB in each rank, "
                f"more than {at_most:g} MB. Leave the metric out, or set +metrics.{name}.at_most={math.ceil(size)}.",
                key=f"metrics.{name}",
            )
        self.classes, self.task = num_classes, task
        self.shapes = {"confusion": (num_classes, num_classes)}

    def observe(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        # Batches are counted later, many at once, since for small models the number of operations matters.
        assert self.task is not None
        scores, targets = self.task.scored(outputs, batch)
        if targets.ndim != 1 or scores.ndim != 2 or scores.shape[1] != self.classes:
            raise ConfigurationError(
                f"metrics.{self.name} needs scores (N, {self.classes}) and class numbers (N,); the task gives "
                f"{tuple(scores.shape)} and {tuple(targets.shape)}. Leave it out, or choose a metric that fits.",
                key=f"metrics.{self.name}",
            )
        return scores.argmax(1), targets

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        return self.add_up([self.observe(outputs, batch)])

    def add_up(self, observed: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        predicted, targets = (torch.cat(parts) for parts in zip(*observed, strict=True))
        return {"confusion": confusion(predicted, targets, self.classes)}

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        matrix = sums["confusion"]
        return 100 * float(self.of(matrix.diag(), matrix.sum(1), matrix.sum(0))) if matrix.sum() else None

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """The metric of each class. hits: correct predictions; rows: samples; columns: predictions; all (classes,)."""
        raise NotImplementedError


class IoU(OfConfusion):
    """Intersection over union, mean over classes; also called the Jaccard index."""

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return _mean(hits, rows + columns - hits)


class F1(OfConfusion):
    """F1 score, mean over classes (macro)."""

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return _mean(2 * hits, rows + columns)


class Precision(OfConfusion):
    """Precision, mean over classes that occur or are predicted (macro); 0 for a class that is never predicted."""

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        occurs = (rows + columns) > 0
        return _mean(hits[occurs], columns[occurs].clamp(min=1))


class Recall(OfConfusion):
    """Recall, mean over classes that occur or are predicted (macro); 0 for a class that never occurs."""

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        occurs = (rows + columns) > 0
        return _mean(hits[occurs], rows[occurs].clamp(min=1))


class BalancedAccuracy(OfConfusion):
    """Recall, mean over the classes that occur."""

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return _mean(hits, rows)


class PixelAccuracy(OfConfusion):
    """The fraction of all pixels that were predicted correctly."""

    def of(self, hits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return hits.sum() / rows.sum()


def _mean(part: Tensor, totals: Tensor) -> Tensor:
    is_positive = totals > 0
    return (part[is_positive] / totals[is_positive]).mean()
