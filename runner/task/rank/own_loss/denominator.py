"""Compares a model's own loss with the cross-entropy of its logits, to see what it averages over."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError

EQUAL = 1e-5  # relative difference of two computations of one loss in fp32


@torch.no_grad()
def refuse_other_denominator(
    loss: Tensor, logits: Tensor | None, labels: Tensor, *, over: str, reduction: str, ignored: int
) -> None:
    """Raises ConfigurationError if the loss is a cross-entropy over other elements than declared.

    Any other loss than a cross-entropy of the logits is taken as declared. loss: (); logits: (N, V) or (N, T, V);
    labels: (N,) or (N, T). ``over``, ``reduction``, ``ignored``: loss_over, reduction and ignore_index of
    conf/task/own_loss.yaml.
    """
    if logits is None or labels.is_floating_point() or logits.shape[:-1] != labels.shape or logits.ndim > 3:
        return
    kept = {reading: float(value) for reading, value in _readings(logits, labels, ignored).items() if value.isfinite()}
    alike = [reading for reading, value in kept.items() if abs(float(loss) - value) <= EQUAL * abs(value)]
    is_declared = ("tokens" if over == "samples" else over, reduction) in alike
    if not alike or is_declared or (over == "samples" and labels.ndim > 1):
        return
    actual, way = alike[0]
    actual = "samples" if over == "samples" and actual == "tokens" else actual
    raise ConfigurationError.at(
        "task.loss_over",
        over,
        f" task.reduction={reduction}: the model's loss is the {way} over {actual}. Set task.loss_over={actual} "
        f"task.reduction={way}.",
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
