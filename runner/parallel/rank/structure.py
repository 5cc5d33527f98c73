"""The tensors in batches, inputs and outputs, and their samples: in tuples, lists, dicts and data classes, nested."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

FEW = 4  # entries of a list that are described one by one


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """The same structure with ``function`` applied to each tensor; everything else is unchanged."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):  # the usual case, before slower checks
        items = [map_tensors(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        mapped = {key: map_tensors(function, item) for key, item in value.items()}
        return mapped if type(value) is dict else type(value)(mapped)  # type: ignore[call-arg]
    if is_dataclass(value) and not isinstance(value, type):
        mapped = {f.name: map_tensors(function, getattr(value, f.name)) for f in fields(value) if f.init}
        return replace(value, **mapped)
    return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in a structure, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Mapping, tuple, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from tensors_in([getattr(value, field.name) for field in fields(value)])


def unrepeated(function: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """Apply ``function`` to a tensor without repeats (strides of 0), as of a grey image's channels; repeat the result.

    So nothing is copied several times, and pinned memory, which torch creates with the same strides, has none of 0.
    """
    repeats = [dim for dim in range(tensor.ndim) if tensor.shape[dim] > 1 and not tensor.stride(dim)]
    if not repeats:
        return function(tensor)
    shape = tensor.shape
    for dim in repeats:
        tensor = tensor.narrow(dim, 0, 1)
    return function(tensor).expand(shape)


def call(model: nn.Module, inputs: Any) -> Any:
    """Call the model: a dict of inputs is passed as keywords, a tuple or list as several arguments."""
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(**inputs) if not isinstance(inputs, Tensor) and isinstance(inputs, Mapping) else model(inputs)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A context with the model in evaluation mode, after which each module has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def held_bytes(tensors: Iterable[Tensor]) -> int:
    """The memory of all these tensors, in bytes; tensors on torch's meta device take none."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if not tensor.is_meta)


def state_tensors(state: Mapping[Tensor, Mapping[str, Any]]) -> list[Tensor]:
    """The tensors of an optimizer's state by parameter."""
    return [value for values in state.values() for value in values.values() if isinstance(value, Tensor)]


def own_settings(optimizer: Optimizer) -> dict[str, Any]:
    """The settings with which an optimizer of the same class can be built; a base's may be among its defaults."""
    accepted = inspect.signature(type(optimizer)).parameters
    return {name: value for name, value in optimizer.defaults.items() if name in accepted}


def stepped(
    kind: type[Optimizer], settings: dict[str, Any], weights: Sequence[Tensor], steps: Sequence[Sequence[Tensor]]
) -> list[Tensor]:
    """Copies of the weights after ``steps``, each with a gradient of each weight, by an optimizer of this kind."""
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    trial = kind(parameters, **settings)
    for gradients in steps:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        trial.step()
    return [parameter.detach() for parameter in parameters]


def rows_of(inputs: Any) -> int:
    """Number of samples in a batch: the length of its first tensor."""
    return len(next(tensors_in(inputs)))


def shapes_of(inputs: Any) -> tuple[Any, ...]:
    """Shapes and dtypes of all tensors in a batch, in order."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(inputs))


def shapes(value: Any) -> str:
    """The shapes and dtypes of the tensors in a structure, in words, in the structure's own form."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {shapes(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        kinds = {type(item).__name__ for item in value}
        if len(value) > FEW and len(kinds) == 1 and not any(True for _ in tensors_in(value)):
            return f"{len(value)} {kinds.pop()}"  # one for each sample
        return "[" + ", ".join(map(shapes, value)) + "]"
    return type(value).__name__


def padded(inputs: Any, rows: int) -> Any:
    """The batch with its first sample repeated until it has ``rows`` samples."""
    count = rows_of(inputs)
    if count == rows:
        return inputs

    def pad(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, tensor[:1].expand(rows - count, *tensor.shape[1:])])

    return _each_with(inputs, count, pad)


def trimmed(outputs: Any, rows: int, count: int) -> Any:
    """The first ``count`` samples of outputs with ``rows``: the inverse of ``padded``."""
    if rows == count:
        return outputs
    return _each_with(outputs, rows, lambda tensor: tensor[:count])


def chunks(inputs: Any, count: int) -> list[Any]:
    """The batch split into up to ``count`` pieces of at least one sample each."""
    rows = rows_of(inputs)
    bounds = [rows * piece // min(rows, count) for piece in range(min(rows, count) + 1)]

    def cut(low: int, high: int) -> Any:
        return _each_with(inputs, rows, lambda tensor: tensor[low:high])

    return [cut(low, high) for low, high in pairwise(bounds)]


def _each_with(values: Any, rows: int, change: Callable[[Tensor], Tensor]) -> Any:
    """The structure with ``change`` applied to those of its tensors that have ``rows`` rows."""
    return map_tensors(lambda tensor: change(tensor) if tensor.ndim and len(tensor) == rows else tensor, values)


def joined(outputs: Sequence[Any]) -> Any:
    """The outputs for a batch from those of its pieces; the inverse of ``chunks``."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat(list(outputs)) if first.ndim else first
    if isinstance(first, Mapping):
        return {key: joined([output[key] for output in outputs]) for key in first}
    if isinstance(first, (list, tuple)):
        return [joined(column) for column in zip(*outputs, strict=True)]
    return first
