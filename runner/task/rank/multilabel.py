"""task=multilabel: any number of classes for each sample; batches are (inputs, 0 or 1 for each class)."""

from collections.abc import Mapping, Sequence
from copy import copy
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

    Both may be (samples,) for a single class. Labels equal to ``ignore_index`` count nowhere: the loss is then the mean
    over all others, and it must be one that is computed for each label, such as BCEWithLogitsLoss.

    Measured: the fraction of all labels that are right at a threshold of 1/2, and in evaluation mean average precision.
    """

    metrics = (
        Share("acc", "right", "labels", label="labels right", short="acc"),
        AveragePrecision("map", label="mAP"),
    )
    monitor = "map"
    bounds = (0, 1)

    def __init__(
        self, *, loss: nn.Module, reduction: str, ignore_index: float | None = None, data: "Data | None" = None
    ):
        super().__init__()
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction
        self.classes = None if data is None else data.num_classes
        self.ignored, self._labels = ignore_index, 0
        if ignore_index is not None:
            self._of_each = copy(loss)
            self._of_each.reduction = "none"  # type: ignore[assignment]

    def count(self, batch: Any) -> float:
        return float(self._kept(batch[1]).sum())

    @property
    def counts_samples(self) -> bool:
        return self.ignored is None

    # -- targets ---------------------------------------------------------------------------------------

    def converted(self, batch: Any) -> Any:
        targets = target_of(batch, "multilabel", "(tensor of shape (3, 32, 32), tensor([0., 1., 1.]))")
        return with_target(batch, targets[:, None] if targets.ndim == 1 else targets)

    def check(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        super().check(outputs, batch, ids)
        self._labels = batch[1].shape[1]
        if self.ignored is not None and self._losses(outputs, batch).shape != batch[1].shape:
            raise ConfigurationError.at(
                "task.ignore_index",
                self.ignored,
                f": {type(self.criterion).__name__} does not compute a loss for each label, so none can be left out. "
                "Set loss._target_=torch.nn.BCEWithLogitsLoss, or task.ignore_index=null.",
            )

    def check_epoch(self, statistics: Mapping[str, Tensor]) -> str | None:
        every = int(statistics["samples"]) * self._labels
        if not (ignored := every - int(statistics["labels"])):
            return None
        return f"{ignored} of the training samples' {every} labels are {self.ignored:g}, and ignored."

    def bounded(self, batch: Any) -> Tensor | None:
        return batch[1] if self.ignored is None else batch[1].masked_fill(batch[1] == self.ignored, 0)

    def _kept(self, labels: Tensor) -> Tensor:
        """True for the labels that count."""
        return torch.ones_like(labels, dtype=torch.bool) if self.ignored is None else labels != self.ignored

    def refusal(self, value: float, where: str) -> ConfigurationError:
        return ConfigurationError.at(
            "task",
            "multilabel",
            f": the label {value:g}{where} is not between 0 and 1. Labels say for each class whether a sample belongs "
            "to it: 1 or 0. Correct them in the data set; for class numbers set task=classification, for labels that "
            "are unknown task.ignore_index to what stands for them, such as -1.",
        )

    # -- loss and measurements -------------------------------------------------------------------------

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        if self.ignored is not None:
            kept = self._kept(batch[1])
            return (self._losses(outputs, batch) * kept).sum() / (kept.sum() if self.reduction == "mean" else 1)
        logits = widened(_by_class(outputs))
        refuse_unlike(logits, batch[1], "multilabel")
        return self.criterion(logits, batch[1].to(logits.dtype))

    def _losses(self, outputs: Any, batch: Any) -> Tensor:
        """The loss of each label, (samples, classes); arbitrary for those that are ignored."""
        logits, labels = widened(_by_class(outputs)), batch[1]
        refuse_unlike(logits, labels, "multilabel")
        return self._of_each(logits, labels.masked_fill(labels == self.ignored, 0).to(logits.dtype))

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        right = (_by_class(outputs) > 0) == (batch[1] > 0.5)
        if self.ignored is None:
            return {"right": right.sum(), "labels": torch.tensor(right.numel())}
        kept = self._kept(batch[1])
        return {"right": (right & kept).sum(), "labels": kept.sum()}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        return _by_class(outputs), batch[1].masked_fill(~self._kept(batch[1]), -1)


def _by_class(outputs: Any) -> Tensor:
    """The logits, (samples, classes), also of a model of one class that returns (samples,)."""
    logits = logits_of(outputs)
    return logits[:, None] if logits.ndim == 1 else logits
