"""task=multilabel: any number of classes for each sample; batches are (inputs, 0 or 1 for each class)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from manyheads.runner.metrics.metric import Share
from manyheads.runner.metrics.rank.ranking import AveragePrecision
from manyheads.runner.task.rank.task import Task, logits_of, reduction_of, refuse_unlike

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data


class Multilabel(Task):
    """Any loss of (logits, targets), both (samples, classes); the mean over samples of each one's mean over classes.

    Measured: the fraction of all labels that are right at a threshold of 1/2, and in evaluation mean average precision.
    """

    metrics = (
        Share("acc", "right", "labels", label="labels right", short="acc"),
        AveragePrecision("map", label="mAP"),
    )
    monitor = "map"

    def __init__(self, *, loss: nn.Module, reduction: str, data: "Data | None" = None):
        super().__init__()
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction
        self.classes = None if data is None else data.num_classes

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        logits = logits_of(outputs)
        refuse_unlike(logits, batch[1], "multilabel")
        return self.criterion(logits, batch[1].to(logits.dtype))

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        right = (logits_of(outputs) > 0) == (batch[1] > 0.5)
        return {"right": right.sum(), "labels": torch.tensor(right.numel())}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        return logits_of(outputs), batch[1]
