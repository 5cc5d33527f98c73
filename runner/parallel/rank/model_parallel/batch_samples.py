"""Counts, pads, splits and joins the samples of inputs and outputs with any structure of tensors."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.parallel.rank.structure import map_tensors, tensors_in


def rows_of(inputs: Any) -> int:
    """Number of samples in a batch: the length of its first tensor."""
    return len(next(tensors_in(inputs)))


def shapes_of(inputs: Any) -> tuple[Any, ...]:
    """Shapes and dtypes of all tensors in a batch, in order."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(inputs))


def padded(inputs: Any, rows: int) -> Any:
    """The batch with its first sample repeated until it has ``rows`` samples."""
    own = rows_of(inputs)
    if own == rows:
        return inputs

    def pad(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, tensor[:1].expand(rows - own, *tensor.shape[1:])])

    return _each_with(inputs, own, pad)


def trimmed(outputs: Any, rows: int, own: int) -> Any:
    """The first ``own`` samples of outputs with ``rows``: the inverse of ``padded``."""
    if rows == own:
        return outputs
    return _each_with(outputs, rows, lambda tensor: tensor[:own])


def chunks(inputs: Any, count: int) -> list[Any]:
    """The batch split into up to ``count`` pieces of at least one sample each."""
    rows = rows_of(inputs)
    bounds = [rows * piece // min(rows, count) for piece in range(min(rows, count) + 1)]

    def cut(low: int, high: int) -> Any:
        return _each_with(inputs, rows, lambda tensor: tensor[low:high])

    return [cut(low, high) for low, high in pairwise(bounds)]


def _each_with(values: Any, rows: int, change: Callable[[Tensor], Tensor]) -> Any:
    """The structure with ``change`` applied to those of its tensors that have ``rows`` rows."""
    return map_tensors(lambda each: change(each) if each.ndim and len(each) == rows else each, values)


def joined(outputs: Sequence[Any]) -> Any:
    """The outputs for a batch from those of its pieces; the inverse of ``chunks``."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat(list(outputs)) if first.ndim else first
    if isinstance(first, Mapping):
        return {key: joined([each[key] for each in outputs]) for key in first}
    if isinstance(first, (list, tuple)):
        return [joined(column) for column in zip(*outputs, strict=True)]
    return first
