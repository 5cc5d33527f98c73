"""task=multilabel: any number of classes for each sample; batches are (inputs, 0 or 1 for each class)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Share
from manyheads.runner.metrics.rank.ranking import AveragePrecision
from manyheads.runner.task.rank.targets import refuse_unlike, target_of, widened, with_target
from manyheads.runner.task.rank.task import Task, logits_of, reduction_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data


class Multilabel(Task):
    """Any loss of (logits, targets), both (samples, classes); the mean over samples of each one's mean over classes.

    Both may be (samples,) for a single class.

    Measured: the fraction of all labels that are right at a threshold of 1/2, and in evaluation mean average precision.
    """

    metrics = (
        Share("acc", "right", "labels", label="labels right", short="acc"),
        AveragePrecision("map", label="mAP"),
    )
    monitor = "map"
    bounds = (0, 1)

    def __init__(self, *, loss: nn.Module, reduction: str, data: "Data | None" = None):
        super().__init__()
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction
        self.classes = None if data is None else data.num_classes

    # -- targets ---------------------------------------------------------------------------------------

    def converted(self, batch: Any) -> Any:
        targets = target_of(batch, "multilabel", "(tensor of shape (3, 32, 32), tensor([0., 1., 1.]))")
        return with_target(batch, targets[:, None] if targets.ndim == 1 else targets)

    def bounded(self, batch: Any) -> Tensor | None:
        return batch[1]

    def refusal(self, value: float, where: str) -> ConfigurationError:
        return ConfigurationError.at(
            "task",
            "multilabel",
            f": the label {value:g}{where} is not between 0 and 1. Labels say for each class whether a sample belongs "
            "to it: 1 or 0. Correct them in the data set; for class numbers set task=classification.",
        )

    # -- loss and measurements -------------------------------------------------------------------------

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        logits = widened(_by_class(outputs))
        refuse_unlike(logits, batch[1], "multilabel")
        return self.criterion(logits, batch[1].to(logits.dtype))

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        right = (_by_class(outputs) > 0) == (batch[1] > 0.5)
        return {"right": right.sum(), "labels": torch.tensor(right.numel())}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        return _by_class(outputs), batch[1]


def _by_class(outputs: Any) -> Tensor:
    """The logits, (samples, classes), also of a model of one class that returns (samples,)."""
    logits = logits_of(outputs)
    return logits[:, None] if logits.ndim == 1 else logits
