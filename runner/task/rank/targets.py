"""Targets in the form that a task takes, and the sentences about those that do not fit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.structure import shapes

SHOWN = 5  # samples


def target_of(batch: Any, task: str, example: str) -> Tensor:
    """The targets of a batch of (inputs, targets). ``example``: a sample that the task takes, for the error.

    Raises ConfigurationError for a batch of another form.
    """
    if isinstance(batch, (tuple, list)) and len(batch) > 1 and isinstance(batch[1], Tensor):
        return batch[1]
    held = f"a dict with {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else shapes(batch)
    raise ConfigurationError.at(
        "task",
        task,
        f" needs samples (inputs, target), such as {example}; a batch of this data set is {held}. Let its __getitem__ "
        "return such a sample, or write a task of your own (task=custom).",
    )


def with_target(batch: Any, targets: Tensor) -> Any:
    """The batch with these targets."""
    return batch if targets is batch[1] else (batch[0], targets, *batch[2:])


def widened(values: Tensor) -> Tensor:
    """The values in at least fp32, in which losses are computed."""
    return values if values.dtype is torch.float32 else values.to(torch.promote_types(values.dtype, torch.float32))


def refuse_where(
    is_unfit: Tensor, targets: Tensor, ids: Sequence[int], refusal: Callable[[float, str], ConfigurationError]
) -> None:
    """Raises the ``refusal`` of the first target for which ``is_unfit``, (N, ...) like ``targets``, is true.

    It is called with the target, and with the samples that have it in words, taken from ``ids``: empty, or in brackets.
    """
    if not bool(is_unfit.any()):
        return
    value = targets[is_unfit].flatten()[0]
    raise refusal(value.item(), samples_with((targets == value) | (targets.isnan() & value.isnan()), ids))


def samples_with(is_it: Tensor, ids: Sequence[int]) -> str:
    """The samples for which ``is_it``, (N, ...), is true anywhere, in brackets; empty if ``ids`` has none of them."""
    numbers = is_it.flatten(1).any(1) if is_it.ndim > 1 else is_it
    samples = [ids[number] for number in numbers.nonzero().flatten().tolist()[:SHOWN] if number < len(ids)]
    return f" (sample {', '.join(map(str, samples))} of the data set)" if samples else ""


def unlike_class(label: float, where: str, classes: int) -> ConfigurationError:
    """The error for a label that is not a class number. ``where``: as for ``refuse_where``."""
    return ConfigurationError(
        f"the label {label:.0f}{where} is not one of the model's {classes} classes. Allowed: 0 to {classes - 1}. "
        "Correct the data set's labels, or set the number of classes: data.num_classes.",
        key="data.num_classes",
    )


def refuse_unlike(values: Tensor, targets: Tensor, task: str) -> None:
    """Raises ConfigurationError for shapes that a loss would silently broadcast."""
    if values.shape != targets.shape:
        raise ConfigurationError(
            f"the model returns outputs of shape {tuple(values.shape)} for targets of shape {tuple(targets.shape)}. "
            f"task={task} needs equal shapes. Set model= to one with as many outputs, such as "
            f"model.num_classes={targets.shape[1] if targets.ndim > 1 else 1}."
        )
