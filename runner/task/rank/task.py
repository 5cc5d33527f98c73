"""The base class of tasks: a model's inputs, its loss with what that averages over, and its metrics."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.task.rank.targets import refuse_where

if TYPE_CHECKING:
    from manyheads.runner.loop.own_step.context import StepContext


class Task(nn.Module):
    """Base class of tasks. A task whose loss is a sum over samples overrides only ``loss``.

    A batch is whatever the data set's collation returns: tensors in tuples, lists, dicts or data classes, nested as you
    like. All its tensors are on the device when a task sees it, except in ``count``, which is called earlier.

    ``reduction``: whether ``loss`` returns the "sum" over what ``count`` counts, the "mean", or a number of the whole
    "batch", such as a contrastive or dice loss, which is treated as a mean. ``metrics``: what is
    measured, the first of which is shown during training; ``monitor``: the name of the one that selects the best
    checkpoint, or "loss". ``outputs``: "logits" if the model returns one per class, for later use of the trained model.
    ``counts_tokens``: whether ``count`` counts tokens, so that the speed is shown in tokens per second. ``version``: of
    the loss, raised when the same outputs give another value; values of different versions are not compared.

    Targets are checked in three places: ``converted`` gives each batch one form of targets, ``check`` sees the first
    batch of training and of every evaluation, and those that ``bounded`` returns are compared with ``bounds``, the
    least and the greatest allowed, in every batch. ``sees``: the number of samples that ``see_first`` gets.

    ``teachers``: names of parts of the model that are not trained: without gradients, always in evaluation mode.
    """

    reduction: str = "sum"
    version: int = 1
    counts_tokens: bool = False
    metrics: Sequence[Metric] = ()
    monitor: str = "loss"
    outputs: str | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    sees: int = 1
    teachers: Sequence[str] = ()

    def __init__(self) -> None:
        super().__init__()  # without arguments, so that an unknown key is refused

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that this task cannot train. Raises ConfigurationError."""

    # -- targets ---------------------------------------------------------------------------------------

    def converted(self, batch: Any) -> Any:
        """The batch with its targets in the form that all other methods take; called first, in host memory.

        Override it to accept other dtypes and shapes whose meaning is clear. Raises ConfigurationError for others.
        """
        return batch

    def see_first(self, batch: Any) -> None:
        """Called with a batch of ``sees`` readable training samples, on the device, before anything else.

        They are spread evenly over the data set, from its first one on, and the same on all ranks, so what statistics
        have in common can depend on them.
        """

    def check(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        """Refuse targets that do not fit the outputs, or that have no meaning. Raises ConfigurationError.

        Called before the loss of the first batch of training and of every evaluation, with gradients if it is
        training; it may wait for the device. ``ids``: the samples' indices in the data set, for messages.
        """
        if (targets := self.bounded(batch)) is not None:
            low, high = self.bounds
            refuse_where(~((targets >= low) & (targets <= high)), targets, ids, self.refusal)

    def check_epoch(self, statistics: Mapping[str, Tensor]) -> str | None:
        """A sentence about what the first epoch of training shows of the targets; None if there is nothing to say.

        ``statistics``: summed over it, with the number of its "samples". Raises ConfigurationError for targets from
        which nothing can be learned.
        """
        return None

    def bounded(self, batch: Any) -> Tensor | None:
        """Those targets that must lie within ``bounds`` in every batch, with the samples first; None if none must.

        Their least and greatest value are computed with the statistics, and compared when these are added up, so that
        no device waits. Neither limit admits NaN.
        """
        return None

    def refusal(self, value: float, where: str) -> ConfigurationError:
        """The error for a target outside ``bounds``. ``where``: empty, or the samples, in brackets."""
        low, high = self.bounds
        return ConfigurationError(
            f"the target {value:g}{where} is not between {low:g} and {high:g}. Correct the data set's targets."
        )

    # -- loss and measurements -------------------------------------------------------------------------

    def inputs(self, batch: Any) -> Any:
        """The model's inputs: a dict is passed as keywords, a tuple or list as several arguments, else as one.

        A task with its own ``step`` gets them as its batch: all of it, if this is not overridden.
        """
        return batch if self.has_step else batch[0]

    def labels_among_inputs(self, batch: Any) -> Iterable[Tensor]:
        """The tensors among the model's inputs that are labels: bytes there are class numbers, not pixels."""
        return ()

    def count(self, batch: Any) -> float:
        """The number of elements that the loss averages over. Override it if these are not samples but, say, tokens.

        ``batch``: in host memory. If samples have weights, it is the sum of these.
        """
        raise NotImplementedError

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """The loss of a batch, (): a sum or a mean, as declared by ``reduction``."""
        raise NotImplementedError

    def step(self, model: Any, batch: Any, context: "StepContext") -> Iterator[Any]:
        """In place of ``inputs`` and ``loss``, for what is not "outputs, then loss": a generator of losses.

        After ``yield loss``, an optimizer steps with its gradients; with several optimizers ``yield "name", loss``.
        All micro-batches of an update reach a ``yield`` before its optimizer steps, and continue afterwards. It may
        ``return`` outputs for ``statistics``. An evaluation runs it without gradients, for the sum of its losses.
        """
        raise NotImplementedError

    def dummy_targets(self, count: int) -> Tensor | None:
        """Targets of ``count`` samples, to check a model's outputs before any data is read.

        They are on torch's default device. None if their shape depends on the data.
        """
        return None

    def mixed_loss(self, outputs: Any, batch: Any, partners: Any, share: float) -> Tensor:
        """The loss of mixed samples, weighted with ``share`` for ``batch`` and the rest for ``partners``."""
        return self.loss(outputs, batch) * share + self.loss(outputs, partners) * (1 - share)

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        """Sums over a batch for ``metrics``, by name, with the shapes that the metrics declare; without gradients."""
        return {}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """The predictions that metrics compare, without gradients: scores (N, classes) or values (N,), and N targets.

        Targets are class numbers (N,), negative to be ignored, or 0 and 1 for each class, (N, classes), or values. A
        task with this method can use all metrics in conf/metrics that suit its kind of target.
        """
        raise ConfigurationError.at(
            "task",
            type(self).__name__,
            " does not define which scores metrics compare. Add a method scored(outputs, "
            "batch), or leave those metrics out.",
        )

    # -- many small batches at once ------------------------------------------------------------------

    @torch.no_grad()
    def observe(self, outputs: Any, batch: Any) -> Any:
        """Observe a batch, without gradients. Returns tensors, nested in any way, for the statistics.

        A task that keeps something else than statistics also has ``add_up(observed)``: the counts of these batches.
        """
        return self.statistics(outputs, batch)

    # -- what follows --------------------------------------------------------------------------------

    @property
    def has_step(self) -> bool:
        """Whether it has a step of its own."""
        return type(self).step is not Task.step

    @property
    def counts_samples(self) -> bool:
        """Whether the loss averages over samples, whose number in the global batch every rank knows."""
        return type(self).count is Task.count


def logits_of(outputs: Any) -> Tensor:
    """The logits in a model's output: the output itself, or the entry ``logits`` of a dict or data class."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    raise ConfigurationError(
        f"the model returns {type(outputs).__name__}, which contains no logits. Let it return a tensor, or a dict "
        "or data class that has logits; or write a task of your own (task=custom)."
    )


def reduction_of(loss: nn.Module) -> str:
    """Whether a loss returns a mean or a sum, as torch's own declare. Raises ConfigurationError if it does not."""
    reduction = getattr(loss, "reduction", None)
    if reduction in ("mean", "sum"):
        return reduction
    raise ConfigurationError.at(
        "loss._target_",
        f"{type(loss).__module__}.{type(loss).__qualname__}",
        f" does not declare whether it returns the mean or the sum over a batch: its attribute "
        f"reduction is {reduction!r}. Set task.reduction=mean or task.reduction=sum.",
    )


def summed_cross_entropy(loss: nn.Module, task: str) -> nn.CrossEntropyLoss:
    """The cross-entropy, set to return a sum: a mean would be NaN for a micro-batch of which nothing counts.

    Raises ConfigurationError for another loss.
    """
    if not isinstance(loss, nn.CrossEntropyLoss):
        raise ConfigurationError.at(
            "loss._target_",
            f"{type(loss).__module__}.{type(loss).__qualname__}",
            f" is not supported by task={task}. Allowed: torch.nn.CrossEntropyLoss, with any of its arguments; or "
            "write a task of your own.",
        )
    loss.reduction = "sum"
    return loss


def weights_of(loss: nn.Module) -> Tensor | None:
    """The class weights by whose sum the mean of a loss is divided, in host memory; None without weights."""
    weights = getattr(loss, "weight", None) if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)) else None
    return None if weights is None else weights.detach().double().cpu()


def counted(labels: Tensor, ignored: int, weights: Tensor | None = None) -> float:
    """The number of labels that are not ignored, or the sum of their class weights."""
    kept = labels != ignored
    if weights is None:
        return int(kept.sum())
    return float(weights[labels[kept].clamp(0, len(weights) - 1)].sum())  # the loss reports other labels
