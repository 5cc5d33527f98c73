"""Metrics of the library torchmetrics: their states are summed over batches and ranks as all others' are."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Direction, Metric

if TYPE_CHECKING:
    from manyheads.runner.task.rank.task import Task


class TorchMetric(Metric):
    """A metric of torchmetrics, with the value that it has in one process over all samples.

    ``metric``: a ``torchmetrics.Metric`` whose states are sums, such as ``MulticlassF1Score`` or, with ``thresholds``,
    ``MulticlassAUROC``. It gets what the task compares: probabilities of classes and targets, or values and targets;
    samples whose class number is negative are left out. ``direction``: max or min, if the metric does not say which is
    better. Raises ConfigurationError for states that are not sums.
    """

    def __init__(self, name: str, *, metric: Any, task: "Task", direction: Direction | None = None, **names: str):
        super().__init__(name, **names)
        self.metric, self.task = metric, task
        self._refuse(not callable(getattr(metric, "merge_state", None)), "is not a metric of torchmetrics")
        self.states = dict(metric.metric_state)
        summable = bool(self.states) and all(isinstance(state, Tensor) for state in self.states.values())
        self._refuse(not summable, "keeps every sample, not sums: set its thresholds, or use metrics=[auroc]")
        is_unknown = direction is None and metric.higher_is_better is None
        self._refuse(is_unknown, f"has no better direction: set metrics.{name}.direction")
        self.direction = direction or ("max" if metric.higher_is_better else "min")
        self.shapes = {state: tuple(default.shape) for state, default in self.states.items()}
        metric.distributed_available_fn = lambda: False  # the run sums states; its own exchange would wait forever
        metric.compute_with_cache = False
        self._unproved = True

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        scores, targets = self.task.scored(outputs, batch)
        if self.task.outputs == "logits":  # torchmetrics would guess from a batch whether they are probabilities
            scores = scores.float()
            scores = scores.softmax(1) if targets.ndim == 1 and scores.ndim == 2 else scores.sigmoid()
        if targets.ndim == 1 and not targets.is_floating_point():
            scores, targets = scores[targets >= 0], targets[targets >= 0]
        self.metric.to(scores.device)
        self.metric.reset()
        if not len(targets):
            return dict(self.metric.metric_state)
        self._update(scores, targets)
        sums = dict(self.metric.metric_state)
        if self._unproved:
            self._prove(sums)
        return sums

    def value(self, sums: Mapping[str, Tensor]) -> float | None:
        if not any(sums[state].any() for state in self.states):
            return None
        total = self.metric.clone().cpu()
        for state, default in self.states.items():
            setattr(total, state, sums[state].to(default.dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that this copy of it has seen no batch
            result = total.compute()
        self._refuse(not isinstance(result, Tensor) or result.numel() != 1, "gives more than one number: average them")
        return float(result)

    def _update(self, scores: Tensor, targets: Tensor) -> None:
        try:
            self.metric.update(scores, targets)
        except (ValueError, RuntimeError) as error:
            self._refuse(
                True, f"rejects scores {tuple(scores.shape)} and targets {tuple(targets.shape)} of the task: {error}"
            )

    def _prove(self, sums: Mapping[str, Tensor]) -> None:
        """Let torchmetrics merge these states with themselves: sums are doubled."""
        twice = self.metric.clone()
        try:
            twice.merge_state(dict(sums))
        except RuntimeError:  # an update of it depends on the states before
            self._refuse(True, "has states that cannot be merged")
        merged = twice.metric_state
        doubled = all(
            merged[state].shape == value.shape and torch.allclose(merged[state].double(), 2 * value.double())
            for state, value in sums.items()
        )
        self._refuse(not doubled, "has states that are not sums, which ranks and batches could not add up")
        self._unproved = False

    def _refuse(self, wrong: bool, why: str) -> None:
        if wrong:
            raise ConfigurationError.at(f"metrics.{self.name}.metric", type(self.metric).__name__, f" {why}.")
