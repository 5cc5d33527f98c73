"""task=own_loss: models that compute their own loss, such as nanoGPT's, and those of transformers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Direction, Metric
from manyheads.runner.option.locate import signature
from manyheads.runner.parallel.rank.structure import tensors_in
from manyheads.runner.task.rank.classification import accuracies, placed
from manyheads.runner.task.rank.language_model import Perplexity
from manyheads.runner.task.rank.own_loss.denominator import refuse_other_denominator
from manyheads.runner.task.rank.task import Task

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data


class Mean(Metric):
    """The mean of a number that the model returns, over the elements that its loss averages over."""

    def __init__(self, name: str, direction: Direction):
        super().__init__(name)
        self.direction = direction
        self.shapes = {name: (), "measured": ()}

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        return float(sums[self.name] / sums["measured"]) if sums["measured"] else None


class OwnLoss(Task):
    """The model is called with the whole batch, labels included, and returns its loss, alone or with other results.

    ``inputs``: the key or position of the entry that it is called with instead, such as a diffusion model's images.
    A dict is passed as keywords, a tuple as several arguments. The loss is the entry or attribute ``loss`` of what the
    model returns, or the only single number in a tuple, or that number itself. ``loss_over``: what it averages over:
    "samples", "tokens" whose label is not ``ignore_index``, or "next_tokens", the same without the first of each
    sample, for models that shift the labels themselves. ``labels``: their key or position in a batch. ``metrics``:
    further numbers that the model returns, by name, each with "max" or "min", whichever is better.
    """

    def __init__(
        self,
        *,
        loss_over: str,
        reduction: str,
        ignore_index: int,
        labels: str | int,
        metrics: dict[str, Direction],
        inputs: str | int = "auto",
        data: "Data | None" = None,
    ):
        super().__init__()
        self.over, self.reduction, self.ignored = loss_over, reduction, ignore_index
        self.where, self.given, self.is_checked = labels, inputs, False
        self.named = tuple(Mean(name, direction) for name, direction in metrics.items())
        self.counts_tokens = loss_over != "samples"
        if loss_over == "samples":
            self.metrics, self.outputs = (
                (*self.named, *accuracies(None if data is None else data.num_classes)),
                "logits",
            )
        else:
            self.metrics, self.monitor = (*self.named, Perplexity(is_loss=True)), "perplexity"

    @property
    def counts_samples(self) -> bool:
        return self.over == "samples"

    def check_model(self, model: nn.Module) -> None:
        if hasattr(model, "training_step") and len(signature(model.forward).parameters) < 2:
            raise ConfigurationError.at(
                "task",
                "own_loss",
                f": the forward of {type(model).__name__} takes no labels, and its training_step is not "
                "called, since strategies wrap forward. Compute the loss in forward and return it, or choose a "
                "task that computes the loss from the outputs, such as task=classification.",
            )

    def inputs(self, batch: Any) -> Any:
        if self.given == "auto":
            return batch
        value = entry(batch, self.given)
        if value is None:
            raise ConfigurationError.at(
                "task.inputs",
                self.given,
                f": a batch is {_held(batch)}, which has no such entry. Set it to the key or position of what the "
                "model is called with, or to auto for all of the batch.",
            )
        return value

    def labels_among_inputs(self, batch: Any) -> Iterable[Tensor]:
        return tensors_in(self._labels(batch))

    def count(self, batch: Any) -> float:
        labels = self.labels(batch)
        if labels.is_floating_point() or not labels.ndim:
            raise ConfigurationError.at(
                "task.loss_over",
                self.over,
                f": the labels of a batch, {labels.dtype} of shape {tuple(labels.shape)}, "
                "are not class numbers. Set task.loss_over=samples, or task.labels to where the labels are.",
            )
        counted = self._counted(labels)
        kept = counted != self.ignored
        if bool((counted[kept] < 0).any()):
            raise ConfigurationError.at(
                "task.ignore_index",
                self.ignored,
                f": a label is {int(counted[kept].min())}. Set task.ignore_index to "
                "the label that the model's loss ignores.",
            )
        return int(kept.sum())

    def _counted(self, labels: Tensor) -> Tensor:
        """Those labels that may count."""
        return labels[:, 1:] if self.over == "next_tokens" else labels

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        loss = _loss_in(outputs)
        if not self.is_checked and isinstance(labels := self._labels(batch), Tensor) and bool(loss.isfinite().all()):
            self.is_checked = True
            declared: dict[str, Any] = {"over": self.over, "reduction": self.reduction, "ignored": self.ignored}
            refuse_other_denominator(loss.detach(), logits_in(outputs), labels, **declared)
        return loss

    @torch.no_grad()
    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        sums = {}
        if self.named:
            # On the device of the labels, since to read the number there would wait for a GPU.
            tokens = None if self.counts_samples else (self._counted(self.labels(batch)) != self.ignored).sum()
            count = torch.tensor(self._samples(batch)) if tokens is None else tokens
            numbers = {output.name: torch.as_tensor(_number(outputs, output.name)) for output in self.named}
            sums = {name: number.double() * count for name, number in numbers.items()} | {"measured": count.double()}
        return sums | (self._places(outputs, batch) if self.counts_samples else {})

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        scores, targets = logits_in(outputs), self.labels(batch)
        if scores is None:
            raise ConfigurationError(
                "metrics: the model returns no logits with its loss. Leave those metrics out.", key="metrics"
            )
        if self.over == "next_tokens":
            scores, targets = scores[:, :-1], targets[:, 1:]
        if self.over != "samples":
            scores, targets = scores.flatten(0, -2), targets.flatten()
        return scores, targets.masked_fill(targets == self.ignored, -1)

    def labels(self, batch: Any) -> Tensor:
        """The labels of a batch. Raises ConfigurationError if there are none."""
        labels = self._labels(batch)
        if not isinstance(labels, Tensor):
            raise ConfigurationError.at(
                "task.labels",
                self.where,
                f": a batch is {_held(batch)}, which has no such tensor. Set it to the key or position "
                "of the labels, or task.loss_over=samples.",
            )
        return labels

    def _labels(self, batch: Any) -> Any:
        if self.where != "auto":
            return entry(batch, self.where)
        if isinstance(batch, Mapping):
            return next((batch[key] for key in ("labels", "targets") if key in batch), None)
        return entry(batch, -1) if isinstance(batch, (tuple, list)) else None

    def _samples(self, batch: Any) -> int:
        labels = self._labels(batch)
        return len(labels) if isinstance(labels, Tensor) else 1

    def _places(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        """How often the right class comes first, and among the first five, if there are classes."""
        scores, targets = logits_in(outputs), self._labels(batch)
        if (
            scores is None
            or not isinstance(targets, Tensor)
            or (scores.ndim, targets.ndim) != (2, 1)
            or targets.is_floating_point()
        ):
            return {"correct1": torch.tensor(0), "correct5": torch.tensor(0), "judged": torch.tensor(0)}
        return placed(scores, targets)


def entry(batch: Any, which: str | int) -> Any:
    """The entry of a batch with this key, position or name of an attribute; None if there is none."""
    if isinstance(batch, Mapping):
        return batch.get(which)
    if isinstance(batch, (tuple, list)):
        return batch[which] if isinstance(which, int) and -1 <= which < len(batch) else None
    return getattr(batch, str(which), None)


def _held(batch: Any) -> str:
    """What a batch is, in words."""
    return f"a dict with {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else type(batch).__name__


def _entry(outputs: Any, name: str) -> Any:
    """An output of the model by name: a dict's entry, also inside a tuple, or an attribute; None if there is none."""
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    if isinstance(outputs, (tuple, list)) and not hasattr(outputs, name):
        return next((part[name] for part in outputs if isinstance(part, Mapping) and name in part), None)
    return None if isinstance(outputs, Tensor) else getattr(outputs, name, None)


def _loss_in(outputs: Any) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs  # if it is not a single number, that is reported as for any loss
    loss = _entry(outputs, "loss")
    if loss is None and isinstance(outputs, (tuple, list)):
        numbers = [part for part in outputs if isinstance(part, Tensor) and not part.ndim and part.is_floating_point()]
        loss = numbers[0] if len(numbers) == 1 else None
    if isinstance(loss, Tensor):
        return loss
    held = f" of {', '.join(type(part).__name__ for part in outputs)}" if isinstance(outputs, (tuple, list)) else ""
    raise ConfigurationError(
        f"the model returns {type(outputs).__name__}{held} without a loss. task=own_loss needs a batch with "
        "labels, and a model that is called with all of it and returns its loss: one number, an entry or attribute "
        "loss, or a tuple with a single number. Otherwise choose a task that computes the loss."
    )


def logits_in(outputs: Any) -> Tensor | None:
    """The logits among a model's outputs: those of that name, or the first tensor of a tuple with several numbers."""
    logits = _entry(outputs, "logits")
    if logits is None and isinstance(outputs, (tuple, list)):
        logits = next((part for part in outputs if isinstance(part, Tensor) and part.ndim > 1), None)
    return logits if isinstance(logits, Tensor) else None


def _number(outputs: Any, name: str) -> Any:
    number = _entry(outputs, name)
    if isinstance(number, (int, float)) or (isinstance(number, Tensor) and number.numel() == 1):
        return number.detach().reshape(()) if isinstance(number, Tensor) else number
    raise ConfigurationError(
        f"task.metrics.{name}: the model returns no single number of that name. Let it return one in a dict with its "
        f"loss, or leave the metric out: ~task.metrics.{name}.",
        key=f"task.metrics.{name}",
    )
