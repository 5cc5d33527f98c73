"""task=regression: numbers for each sample; batches are (inputs, values)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.metrics.metric import Metric
from manyheads.runner.task.rank.task import Task, logits_of, reduction_of, refuse_unlike


class MAE(Metric):
    """Mean absolute error, in the unit of the targets."""

    direction = "min"
    shapes = MappingProxyType({"apart": (), "values": ()})

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        return float(sums["apart"] / sums["values"]) if sums["values"] else None


class R2(Metric):
    """R²: the fraction of the targets' variance that is explained: 1 at best, 0 for always predicting their mean."""

    shapes = MappingProxyType({"squares": (), "values": (), "targets": (), "target_squares": ()})

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        if sums["values"] < 2:
            return None
        spread = float(sums["target_squares"] - sums["targets"] ** 2 / sums["values"])
        return 1 - float(sums["squares"]) / spread if spread > 0 else None


class Regression(Task):
    """Any loss of (outputs, values) of the same shape; outputs (samples, 1) also fit values (samples,).

    The mean over samples of each one's mean over its values.
    """

    metrics = (MAE("mae", label="MAE"), R2("r2", label="R2"))
    monitor = "mae"

    def __init__(self, *, loss: nn.Module, reduction: str):
        super().__init__()
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        values, targets = _alike(outputs, batch)
        return self.criterion(values, targets)

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        values, targets = (each.double() for each in _alike(outputs, batch))
        apart = values - targets
        return {
            "apart": apart.abs().sum(),
            "squares": apart.square().sum(),
            "values": torch.tensor(targets.numel()),
            "targets": targets.sum(),
            "target_squares": targets.square().sum(),
        }

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        return _alike(outputs, batch)


def _alike(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Outputs and targets in one shape: (samples,) and (samples, 1) would broadcast to all pairs of samples."""
    values, targets = logits_of(outputs), batch[1]
    if values.ndim == targets.ndim + 1 and values.shape[-1] == 1:
        values = values.squeeze(-1)
    refuse_unlike(values, targets, "regression")
    return values, targets.to(values.dtype)
