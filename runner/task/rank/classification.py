"""task=classification: one class for each sample; batches are (inputs, class numbers), or probabilities of classes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Share
from manyheads.runner.parallel.rank.structure import shapes
from manyheads.runner.task.rank.losses import BinaryCrossEntropy
from manyheads.runner.task.rank.targets import refuse_where, target_of, unlike_class, widened, with_target
from manyheads.runner.task.rank.task import Task, counted, logits_of, reduction_of, weights_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data

PLACES = 5
SEEN = 64  # samples among which labels that the loss ignores are looked for, before training
# Losses of each class by itself: a softmax over all classes would not be what was trained.
ONE_BY_ONE = (nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiLabelMarginLoss, nn.MultiLabelSoftMarginLoss, nn.MSELoss)
# Losses of each output and its own target, which would be broadcast to other shapes.
ELEMENTWISE = (*ONE_BY_ONE[:2], nn.MultiLabelSoftMarginLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)
ROUNDED = 1e-2  # by how much probabilities of half precision may differ from a sum of 1


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
    """Any loss of (logits, targets) that averages over its batch; top-1 and top-5 accuracy.

    Targets are class numbers (N,) of any integer dtype, or a probability for each class, (N, classes), of which the
    most probable class is the right one. The model may return a dict or data class that has ``logits``. ``ignores``:
    whether the config sets loss.ignore_index, so that some samples may not count; otherwise it depends on whether
    some of the samples that it sees first have the label that the loss ignores.
    """

    monitor = "acc1"
    bounds = (0, 1)

    def __init__(self, *, loss: nn.Module, reduction: str, data: "Data | None" = None, ignores: bool = False):
        super().__init__()
        self.classes = None if data is None else data.num_classes
        self.metrics = accuracies(self.classes)
        self.criterion = loss
        self.reduction = reduction_of(loss) if reduction == "auto" else reduction
        self.ignored = getattr(loss, "ignore_index", -1)
        self._ignore(ignores or self.ignored >= 0)
        may_ignore = hasattr(loss, "ignore_index") and data is not None and not data.numbers_classes
        self.sees = SEEN if may_ignore and not self.ignores else 0
        self.class_weights = weights_of(loss) if self.reduction == "mean" else None
        self.outputs = None if isinstance(loss, ONE_BY_ONE) else "logits"

    def see_first(self, batch: Any) -> None:
        targets = batch[1]
        self._ignore(not targets.is_floating_point() and bool((targets == self.ignored).any()))

    def _ignore(self, ignores: bool) -> None:
        """Set whether some samples may not count."""
        self.ignores = ignores
        for metric in self.metrics:
            metric.version = 2 if ignores else 1  # 1: ignored samples count as wrong

    @property
    def counts_samples(self) -> bool:
        return not self.ignores and self.class_weights is None

    def count(self, batch: Any) -> float:
        if batch[1].is_floating_point():  # torch divides the loss of probabilities by their number
            return len(batch[1])
        return counted(batch[1], self.ignored, self.class_weights)

    # -- targets ---------------------------------------------------------------------------------------

    def converted(self, batch: Any) -> Any:
        targets = target_of(batch, "classification", "(tensor of shape (3, 32, 32), 5)")
        if targets.is_floating_point():
            return batch
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets.squeeze(1)
        if targets.ndim == 2 and isinstance(self.criterion, nn.CrossEntropyLoss):  # one-hot
            return with_target(batch, targets.to(torch.get_default_dtype()))
        return with_target(batch, targets.long())

    def check(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        logits, targets = logits_of(outputs), batch[1]
        if logits.requires_grad:
            _refuse_auxiliary(outputs)
        if targets.is_floating_point():
            if targets.ndim != 2 or targets.shape[1] < 2:
                raise self._unlike(logits, targets)
            self._logits(outputs)
            if targets.shape != logits.shape:
                raise self._unlike(logits, targets)
            super().check(outputs, batch, ids)
            sums = targets.double().sum(1)
            refuse_where((sums - 1).abs() > ROUNDED, sums, ids, _unlike_probabilities)
            return
        elementwise = isinstance(self.criterion, ELEMENTWISE) and not isinstance(self.criterion, BinaryCrossEntropy)
        if targets.ndim == 1 and (logits.ndim < 2 or elementwise):
            raise self._unlike(logits, targets)
        if self._logits(outputs).ndim == 2 and targets.ndim == 1:
            self._refuse_unlike_classes(targets, logits.shape[1], ids)

    def check_epoch(self, statistics: Mapping[str, Tensor]) -> str | None:
        samples = int(statistics["samples"])
        if not self.ignores or not (ignored := samples - int(statistics["judged"])):
            return None
        return f"{ignored} of {samples} training samples have the label {self.ignored}, which the loss ignores."

    def bounded(self, batch: Any) -> Tensor | None:
        return batch[1] if batch[1].is_floating_point() else None

    def refusal(self, value: float, where: str) -> ConfigurationError:
        return ConfigurationError(
            f"the target {value:g}{where} is not a probability. task=classification takes class numbers (N,), or a "
            "probability for each class (N, classes). Correct the data set's targets; for numbers set task=regression."
        )

    def _refuse_unlike_classes(self, targets: Tensor, classes: int, ids: Sequence[int] = ()) -> None:
        is_unfit = (targets < 0) | (targets >= classes)
        if self.ignores:
            is_unfit &= targets != self.ignored
        refuse_where(is_unfit, targets, ids, lambda label, where: self._unlike_class(int(label), where, classes))

    def _unlike_class(self, label: int, where: str, classes: int) -> ConfigurationError:
        if label != getattr(self.criterion, "ignore_index", None):
            return unlike_class(label, where, classes)
        return ConfigurationError(
            f"the loss ignores the label {label}{where}, so it is a mean over fewer samples. Set "
            f"+loss.ignore_index={label}, so that updates and metrics count only the others, too.",
            key="loss.ignore_index",
        )

    def _unlike(self, logits: Tensor, targets: Tensor) -> ConfigurationError:
        return ConfigurationError(
            f"{type(self.criterion).__name__} cannot compute the loss of the model's outputs, {shapes(logits)}, for "
            f"targets {shapes(targets)}: task=classification needs outputs (N, classes), and as targets integer class "
            "numbers (N,) or a probability for each class (N, classes). For numbers set task=regression, for labels 0 "
            "and 1 task=multilabel; for class numbers another loss.",
            key="task",
        )

    # -- loss and measurements -------------------------------------------------------------------------

    def _logits(self, outputs: Any) -> Tensor:
        logits = logits_of(outputs)
        if self.classes is not None and logits.ndim == 2 and logits.shape[1] != self.classes:
            raise ConfigurationError(
                f"the model returns {logits.shape[1]} outputs per sample, but the data has {self.classes} "
                "classes. Let its class accept num_classes, as the built-in models do, or set its own key for that."
            )
        return logits

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        logits, targets = widened(self._logits(outputs)), batch[1]
        return self.criterion(logits, targets.to(logits.dtype) if targets.is_floating_point() else targets)

    def dummy_targets(self, count: int) -> Tensor | None:
        return torch.zeros(count, dtype=torch.long)

    def mixed_loss(self, outputs: Any, batch: Any, partners: Any, share: float) -> Tensor:
        if getattr(self.criterion, "target_threshold", None) is None:
            return super().mixed_loss(outputs, batch, partners, share)
        mixed: Any = self.criterion.mixed  # not a sum of two losses
        return mixed(widened(self._logits(outputs)), batch[1], partners[1], share)

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        targets = _most_probable(batch[1])
        return logits_of(outputs), targets.masked_fill(targets == self.ignored, -1) if self.ignores else targets

    def observe(self, outputs: Any, batch: Any) -> Scored:
        # Counted for many batches at once, with few operations, which small models need.
        return Scored(logits_of(outputs).detach(), _most_probable(batch[1]))

    def add_up(self, observed: list[Scored]) -> dict[str, Tensor]:
        if not observed[0].has_classes:
            return {}
        logits, targets = (torch.cat(parts) for parts in zip(*observed, strict=True))
        if self.ignores:
            counts = targets != self.ignored
            logits, targets = logits[counts], targets[counts]
        if len(targets) and int(targets.min()) < 0:
            self._refuse_unlike_classes(targets, logits.shape[1])
        return placed(logits, targets)


def placed(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The sums of ``accuracies``: how often the right class comes first, and among the first five."""
    places = top_places(logits, targets)
    return {"correct1": places[0], "correct5": places.sum(), "judged": torch.tensor(len(targets))}


def _most_probable(targets: Tensor) -> Tensor:
    """Class numbers: those of the most probable classes if targets are probabilities (N, classes)."""
    return targets.argmax(1) if targets.is_floating_point() else targets


def _unlike_probabilities(total: float, where: str) -> ConfigurationError:
    return ConfigurationError.at(
        "task",
        "classification",
        f": a sample's targets{where} add up to {total:g}, and not to 1. For several classes of a sample set "
        "task=multilabel, for numbers task=regression.",
    )


def _refuse_auxiliary(outputs: Any) -> None:
    """Raises ConfigurationError for outputs of auxiliary heads, as of GoogLeNet, which no loss would train."""
    names = outputs if isinstance(outputs, Mapping) else getattr(outputs, "_fields", ())
    if auxiliary := [name for name in names if name.startswith("aux")]:
        raise ConfigurationError(
            f"the model also returns {', '.join(auxiliary)}, the outputs of auxiliary heads, which "
            "task=classification does not train. Build it without them (+model.aux_logits=false for GoogLeNet and "
            "Inception), or write a task of your own (task=custom)."
        )


def top_places(logits: Tensor, targets: Tensor) -> Tensor:
    """Samples whose class comes first, second, ... fifth: (5,). Of equal logits the first class leads.

    logits: (N, classes); targets: (N,). Comparing is several times faster than sorting (topk), and counts NaN as wrong.
    """
    classes, labels = logits.shape[1], targets[:, None]
    numbers, first = _numbers(classes, logits.device)
    score = logits.gather(1, labels)
    behind = (logits < score) | ((logits == score) & (numbers >= labels))  # itself included
    return (behind.sum(1, keepdim=True) == first).sum(0)


@lru_cache
def _numbers(classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The classes' numbers, and how many are behind each place, itself included."""
    behind = [classes - position if position < classes else -1 for position in range(PLACES)]
    return torch.arange(classes, device=device), torch.tensor(behind, device=device)
