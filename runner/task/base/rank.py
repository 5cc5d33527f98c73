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

    def count(self, batch: Any) -> float:
        """How many the loss is averaged over. Override it where that is not the number of samples, but of tokens, say.

        ``batch``: in host memory. Where samples have weights, it is the sum of these.
        """
        raise NotImplementedError

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """The loss of a batch, (): a sum, or a mean, as ``reduction`` says."""
        raise NotImplementedError

    def mixed_loss(self, outputs: Any, batch: Any, partners: Any, share: float) -> Tensor:
        """The loss of mixed samples, of which ``share`` is as in ``batch``, and the rest as in ``partners``."""
        return self.loss(outputs, batch) * share + self.loss(outputs, partners) * (1 - share)

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        """Sums over a batch for ``metrics``, by name, each of the shape that its metric names; without gradients."""
        return {}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """What metrics compare, without gradients: scores (N, classes) or values (N,), and as many targets.

        Targets are class numbers (N,), below 0 for what is left out, or 0 and 1 for each class, (N, classes), or
        values. One task for many metrics: who has this can take all of conf/metrics that are of its kind.
        """
        raise ConfigurationError(
            f"task={type(self).__name__} does not define which scores metrics compare. Add a method scored(outputs, "
            "batch), or leave those metrics out."
        )

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
        f"the model returns {type(outputs).__name__}, which contains no logits. Let it return a tensor, or a dict "
        "or data class that has logits; or write a task of your own (task=custom)."
    )


def reduction_of(loss: nn.Module) -> str:
    """Whether it returns a mean or a sum, as torch's own losses say. Raises ConfigurationError where it doesn't say."""
    reduction = getattr(loss, "reduction", None)
    if reduction in ("mean", "sum"):
        return reduction
    kind = f"{type(loss).__module__}.{type(loss).__qualname__}"
    raise ConfigurationError(
        f"loss._target_={kind} does not declare whether it returns the mean or the sum over a batch: its attribute "
        f"reduction is {reduction!r}. Set task.reduction=mean or task.reduction=sum."
    )


def weights_of(loss: nn.Module) -> Tensor | None:
    """The classes' weights, by whose sum the mean of such a loss divides, in host memory; None where it has none."""
    weights = getattr(loss, "weight", None) if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)) else None
    return None if weights is None else weights.detach().double().cpu()


def counted(labels: Tensor, ignored: int, weights: Tensor | None = None) -> float:
    """How many labels are not the ignored one, or the sum of their classes' weights."""
    kept = labels != ignored
    if weights is None:
        return int(kept.sum())
    return float(weights[labels[kept].clamp(0, len(weights) - 1)].sum())  # the loss itself says what is no class


def refuse_unlike(values: Tensor, targets: Tensor, task: str) -> None:
    """Raises ConfigurationError for shapes that a loss would broadcast, to something that nobody wants."""
    if values.shape != targets.shape:
        raise ConfigurationError(
            f"the model returns outputs of shape {tuple(values.shape)} for targets of shape {tuple(targets.shape)}. "
            f"task={task} needs equal shapes. Set model= to one with as many outputs, such as "
            f"model.num_classes={targets.shape[1] if targets.ndim > 1 else 1}."
        )
