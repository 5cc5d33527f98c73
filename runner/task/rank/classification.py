"""task=classification: one class for each sample; batches are (inputs, class numbers)."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Share
from manyheads.runner.task.rank.task import Task, counted, reduction_of, weights_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data

PLACES = 5
# Losses of each class by itself: a softmax over all classes would not be what was trained.
ONE_BY_ONE = (nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiLabelMarginLoss, nn.MultiLabelSoftMarginLoss, nn.MSELoss)


class Scored(NamedTuple):
    """logits: (samples, classes); targets: (samples,)."""

    logits: Tensor
    targets: Tensor

    @property
    def has_classes(self) -> bool:
        """Whether the targets are class numbers, so that there is an accuracy."""
        return self.logits.ndim == 2 and self.targets.ndim == 1 and not self.targets.is_floating_point()


def accuracies(classes: Any = None) -> tuple[Share, Share]:
    """Top-1 and top-5 accuracy; top-5 is meaningless, and not shown, for data with no more than five classes."""
    first = Share("acc1", "correct1", "judged", label="accuracy", short="acc")
    top5 = Share("acc5", "correct5", "judged", label="top-5")
    top5.is_shown = not isinstance(classes, int) or classes > PLACES
    return first, top5


class Classification(Task):
    """Any loss of (logits, targets) that averages over its batch; top-1 and top-5 accuracy."""

    monitor = "acc1"

    def __init__(self, *, loss: nn.Module, reduction: str, data: "Data | None" = None):
        super().__init__()
        self.classes = None if data is None else data.num_classes
        self.metrics = accuracies(self.classes)
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction
        self.ignored = getattr(loss, "ignore_index", -1)
        self.class_weights = weights_of(loss) if self.reduction == "mean" else None
        self.outputs = None if isinstance(loss, ONE_BY_ONE) else "logits"

    @property
    def counts_samples(self) -> bool:
        return self.ignored < 0 and self.class_weights is None  # no class has such a number

    def count(self, batch: Any) -> float:
        return counted(batch[1], self.ignored, self.class_weights)

    def loss(self, outputs: Tensor, batch: Any) -> Tensor:
        if self.classes is not None and outputs.ndim == 2 and outputs.shape[1] != self.classes:
            raise ConfigurationError(
                f"the model returns {outputs.shape[1]} outputs per sample, but the data has {self.classes} "
                "classes. Let its class accept num_classes, as the built-in models do, or set its own key for that."
            )
        return self.criterion(outputs, batch[1])

    def dummy_targets(self, count: int) -> Tensor | None:
        return torch.zeros(count, dtype=torch.long)

    def mixed_loss(self, outputs: Tensor, batch: Any, partners: Any, share: float) -> Tensor:
        if getattr(self.criterion, "target_threshold", None) is None:
            return super().mixed_loss(outputs, batch, partners, share)
        mixed: Any = self.criterion.mixed  # not a sum of two losses
        return mixed(outputs, batch[1], partners[1], share)

    def scored(self, outputs: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        targets = batch[1]
        return outputs, targets if self.ignored < 0 else targets.masked_fill(targets == self.ignored, -1)

    def observe(self, outputs: Tensor, batch: Any) -> Scored:
        # Counted for many batches at once, with few operations, which small models need.
        return Scored(outputs.detach(), batch[1])

    def add_up(self, observed: list[Scored]) -> dict[str, Tensor]:
        found = [each for each in observed if each.has_classes]
        if not found:
            return {}
        targets = torch.cat([each.targets for each in found])
        places = top_places(torch.cat([each.logits for each in found]), targets)
        return {"correct1": places[0], "correct5": places.sum(), "judged": torch.tensor(len(targets))}


def top_places(logits: Tensor, targets: Tensor) -> Tensor:
    """Samples whose class comes first, second, ... fifth: (5,). Of equal logits the first class leads.

    logits: (N, classes); targets: (N,). Comparing is several times faster than sorting (topk), and counts NaN as wrong.
    """
    classes, own = logits.shape[1], targets[:, None]
    numbers, first = _numbers(classes, logits.device)
    score = logits.gather(1, own)
    behind = (logits < score) | ((logits == score) & (numbers >= own))  # itself included
    return (behind.sum(1, keepdim=True) == first).sum(0)


@lru_cache
def _numbers(classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The classes' numbers, and how many are behind each place, itself included."""
    behind = [classes - place if place < classes else -1 for place in range(PLACES)]
    return torch.arange(classes, device=device), torch.tensor(behind, device=device)
