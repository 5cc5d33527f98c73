"""task=language_model: a class for each token; batches are (tokens, labels), both (samples, tokens)."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.parallel.rank.structure import shapes
from manyheads.runner.task.rank.targets import refuse_where, target_of, with_target
from manyheads.runner.task.rank.task import Task, counted, logits_of, summed_cross_entropy, weights_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data

EXAMPLE = "(tokens of shape (64,), the next tokens, of the same shape)"


class Perplexity(Metric):
    """exp of the mean cross-entropy of a token, in nats. ``is_loss``: the run's loss is that cross-entropy."""

    direction = "min"

    def __init__(self, name: str = "perplexity", *, is_loss: bool = False, **names: str):
        super().__init__(name, **{"short": "ppl", **names})
        self.parts = ("loss", "counted") if is_loss else ("nats", "tokens")
        self.shapes = {} if is_loss else {"nats": (), "tokens": ()}

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        nats, tokens = (float(sums[name]) for name in self.parts)
        if not tokens:
            return None
        try:
            return math.exp(nats / tokens)
        except OverflowError:
            return math.inf


class LanguageModel(Task):
    """The loss is over the tokens of the global batch whose label is not the loss's ``ignore_index``.

    The model returns logits (samples, tokens, vocabulary), or a dict or data class that has ``logits``. A batch is
    (tokens, labels), or a dict with "labels", whose other entries the model takes as keywords. Labels are the next
    tokens: the data shifts them, the task does not.
    """

    monitor = "perplexity"

    def __init__(self, *, loss: nn.Module, data: "Data | None" = None):
        super().__init__()
        self.criterion = loss = summed_cross_entropy(loss, "language_model")
        self.ignored, self.class_weights = loss.ignore_index, weights_of(loss)
        self.vocabulary = None if data is None else data.num_classes
        self.counts_tokens = self.class_weights is None
        self.is_plain = loss.weight is None and not loss.label_smoothing
        self.metrics = (Perplexity(is_loss=self.is_plain),)

    def inputs(self, batch: Any) -> Any:
        if isinstance(batch, Mapping):
            return {name: value for name, value in batch.items() if name != "labels"}
        return batch[0]

    def converted(self, batch: Any) -> Any:
        pair = (None, batch.get("labels")) if isinstance(batch, Mapping) else batch
        labels = target_of(pair, "language_model", EXAMPLE)
        if labels.is_floating_point() or labels.ndim != 2:
            raise ConfigurationError.at(
                "task",
                "language_model",
                f": labels are {shapes(labels)}. It needs the numbers of the next tokens, integers of shape (samples, "
                "tokens). Correct them in the data set; for one class per sample set task=classification.",
            )
        if labels.dtype == torch.long:
            return batch
        return {**batch, "labels": labels.long()} if isinstance(batch, Mapping) else with_target(batch, labels.long())

    def check(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        labels, size = _labels(batch), logits_of(outputs).shape[-1]
        is_unfit = ((labels < 0) | (labels >= size)) & (labels != self.ignored)
        refuse_where(is_unfit, labels, ids, lambda label, where: self._unlike_token(int(label), where, size))

    def _unlike_token(self, label: int, where: str, size: int) -> ConfigurationError:
        return ConfigurationError.at(
            "loss.ignore_index",
            self.ignored,
            f": the label {label}{where} is not one of the model's {size} tokens. Allowed: 0 to {size - 1}, and "
            "loss.ignore_index for tokens that do not count, such as padding. Set it, or correct the labels.",
        )

    def count(self, batch: Any) -> float:
        return counted(_labels(batch), self.ignored, self.class_weights)

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        logits, labels = logits_of(outputs), _labels(batch)
        if logits.ndim != 3 or logits.shape[:2] != labels.shape:
            raise ConfigurationError(
                f"the model returns outputs of shape {tuple(logits.shape)} for labels of shape "
                f"{tuple(labels.shape)}. task=language_model needs (samples, tokens, vocabulary). Set model= to a "
                "language model."
            )
        if self.vocabulary is not None and logits.shape[2] < self.vocabulary:
            raise ConfigurationError(
                f"the model's vocabulary is {logits.shape[2]}, the data's is {self.vocabulary}. Let its class accept "
                "num_classes, which is the vocabulary size, or set its own key for that."
            )
        return self.criterion(logits.flatten(0, 1), labels.flatten())

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        labels = _labels(batch).flatten()
        return logits_of(outputs).flatten(0, 1), labels.masked_fill(labels == self.ignored, -1)

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        if self.is_plain:
            return {}
        logits, labels = logits_of(outputs).flatten(0, 1), _labels(batch).flatten()
        nats = cross_entropy(logits, labels, ignore_index=self.ignored, reduction="sum")
        return {"nats": nats, "tokens": (labels != self.ignored).sum()}


def _labels(batch: Any) -> Tensor:
    return batch["labels"] if isinstance(batch, Mapping) else batch[1]
