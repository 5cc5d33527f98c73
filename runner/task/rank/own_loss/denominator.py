"""Compares a model's own loss with the cross-entropy of its logits, to see what it averages over."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError

EQUAL = 1e-5  # relative difference of two computations of one loss in fp32


class Declared(Protocol):
    """The declarations about the loss in conf/task/own_loss.yaml."""

    over: str
    reduction: str
    ignored: int


@torch.no_grad()
def refuse_other_denominator(declared: Declared, loss: Tensor, logits: Tensor | None, labels: Tensor) -> None:
    """Raises ConfigurationError if the loss is a cross-entropy over other elements than declared.

    Any other loss than a cross-entropy of the logits is taken as declared. loss: (); logits: (N, V) or
    (N, T, V); labels: (N,) or (N, T).
    """
    if logits is None or labels.is_floating_point() or logits.shape[:-1] != labels.shape or logits.ndim > 3:
        return
    readings = _readings(logits, labels, declared.ignored)
    kept = {reading: float(value) for reading, value in readings.items() if bool(torch.isfinite(value))}
    declaration = ("tokens" if declared.over == "samples" else declared.over, declared.reduction)
    alike = [reading for reading, value in kept.items() if abs(float(loss) - value) <= EQUAL * abs(value)]
    if not alike or declaration in alike or (declared.over == "samples" and labels.ndim > 1):
        return
    over, reduction = alike[0]
    over = "samples" if declared.over == "samples" and over == "tokens" else over
    raise ConfigurationError.at(
        "task.loss_over",
        declared.over,
        f" task.reduction={declared.reduction}: the model's loss is the {reduction} over "
        f"{over}. Set task.loss_over={over} task.reduction={reduction}.",
    )


def _readings(logits: Tensor, labels: Tensor, ignored: int) -> dict[tuple[str, str], Tensor]:
    """The cross-entropies, by the elements that they are over, and the reduction."""
    readings = {}
    for over in ("tokens", "next_tokens") if labels.ndim > 1 else ("tokens",):
        parts = [torch.stack(_of_sample(*pair, ignored, over)) for pair in zip(logits, labels, strict=True)]
        readings[over, "sum"], count = torch.stack(parts).sum(0)
        readings[over, "mean"] = readings[over, "sum"] / count
    return readings


def _of_sample(logits: Tensor, labels: Tensor, ignored: int, over: str) -> tuple[Tensor, Tensor]:
    """Sum and count of one sample, since a copy of all logits in fp32 may be too large."""
    if over == "next_tokens":
        logits, labels = logits[:-1], labels[1:]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if not labels.ndim:
        logits, labels = logits[None], labels[None]
    return cross_entropy(logits, labels, ignore_index=ignored, reduction="sum"), (labels != ignored).sum()
