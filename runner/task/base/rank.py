"""What a batch means: the model's inputs, the loss and how many it is over, and what is measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.metrics.base import Metric
from manyheads.runner.run.errors import ConfigurationError


class Task(nn.Module):
    """The base of all tasks. One that sums its loss over the samples overrides ``loss`` alone.

    A batch is what the data set's collation gives: tensors in tuples, lists, dicts or data classes, in any nesting. All
    tensors in it are on the device when a task sees it, but for ``count``, which comes before.

    ``reduction``: whether ``loss`` returns the sum over what ``count`` counts, or the mean. ``metrics``: what is
    measured, the first one of all shown while training; ``monitor``: the name of the one that makes a checkpoint the
    best, or "loss". ``outputs``: "logits" where the model gives one for each class, for whoever uses it once trained.
    """

    reduction: str = "sum"
    metrics: Sequence[Metric] = ()
    monitor: str = "loss"
    outputs: str | None = None

    def __init__(self) -> None:
        super().__init__()  # without arguments, so that an unknown key is refused

    def inputs(self, batch: Any) -> Any:
        """What the model is called with: a dict as keywords, a tuple or list as several arguments, else one."""
        return batch[0]

    def count(self, batch: Any) -> int:
        """How many the loss is averaged over. Override it where that is not the number of samples, but of tokens, say.

        ``batch``: in host memory.
        """
        raise NotImplementedError

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """The loss of a batch, (): a sum, or a mean, as ``reduction`` says."""
        raise NotImplementedError

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        """Sums over a batch for ``metrics``, by name, each of the shape that its metric names; without gradients."""
        return {}

    # -- many small batches at once ------------------------------------------------------------------

    @torch.no_grad()
    def observe(self, outputs: Any, batch: Any) -> Any:
        """What is kept of a batch until ``add_up``: tensors, nested at will, that hold on to no gradient."""
        return self.statistics(outputs, batch)

    def add_up(self, observed: list[Any]) -> dict[str, Tensor]:
        """The statistics of all these batches."""
        return {name: sum(each[name] for each in observed) for name in observed[0]}

    # -- what follows --------------------------------------------------------------------------------

    @property
    def counts_samples(self) -> bool:
        """Whether the loss is over samples, whose number in the global batch all ranks know."""
        return type(self).count is Task.count


def logits_of(outputs: Any) -> Tensor:
    """The logits of what a model returned: itself, or what is called so in a dict or data class."""
    if isinstance(outputs, Tensor):
        return outputs
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if isinstance(found, Tensor):
        return found
    raise ConfigurationError(
        f"the model returns {type(outputs).__name__}, in which there are no logits. Let it return a tensor, or a dict "
        "or data class that has logits; or write a task of your own (task=custom)."
    )
