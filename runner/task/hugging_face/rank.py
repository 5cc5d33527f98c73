"""task=hugging_face: models that compute their own loss, as those of transformers do; batches are dicts of keywords."""

from typing import Any

import torch
from torch import Tensor

from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.task.base.rank import Task, logits_of
from manyheads.runner.task.classification.rank import Classification, top_places
from manyheads.runner.task.language_model.rank import Perplexity

IGNORED = -100  # the label that all of transformers leave out


class HuggingFace(Task):
    """The model is called with the whole batch, labels included, and returns a mean loss as ``outputs.loss``.

    ``loss_over``: what that is a mean over, by which it is multiplied: "samples", "tokens" whose label is not -100, or
    "next_tokens", the same without the first of each sample, as causal language models shift the labels themselves.
    """

    reduction = "mean"

    def __init__(self, *, loss_over: str):
        super().__init__()
        self.over = loss_over
        if loss_over == "samples":
            self.metrics, self.monitor, self.outputs = Classification.metrics, "acc1", "logits"
        else:
            self.metrics, self.monitor = (Perplexity(is_loss=True),), "perplexity"

    @property
    def counts_samples(self) -> bool:
        return self.over == "samples"

    def inputs(self, batch: Any) -> Any:
        return batch

    def count(self, batch: Any) -> float:
        labels = batch["labels"]
        return int(((labels[:, 1:] if self.over == "next_tokens" else labels) != IGNORED).sum())

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        loss = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", None)
        if loss is None:
            raise ConfigurationError(
                f"the model returns {type(outputs).__name__} without a loss. task=hugging_face needs a batch with "
                "labels, and a model that accepts them."
            )
        return loss

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        if self.over != "samples":
            return {}
        scores, targets = self.scored(outputs, batch)
        if scores.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
            return {"correct1": torch.tensor(0), "correct5": torch.tensor(0), "judged": torch.tensor(0)}
        places = top_places(scores, targets)
        return {"correct1": places[0], "correct5": places.sum(), "judged": torch.tensor(len(targets))}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        scores, targets = logits_of(outputs), batch["labels"]
        if self.over == "next_tokens":
            scores, targets = scores[:, :-1], targets[:, 1:]
        if self.over != "samples":
            scores, targets = scores.flatten(0, 1), targets.flatten()
        return scores, targets.masked_fill(targets == IGNORED, -1)
