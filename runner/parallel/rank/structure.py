"""The tensors in batches, inputs and outputs: tuples, lists, dicts and data classes, in any nesting."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor, nn


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
        return replace(
            value, **{f.name: map_tensors(function, getattr(value, f.name)) for f in fields(value) if f.init}
        )
    return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in a structure, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


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


def held_bytes(tensors: Iterable[Tensor]) -> int:
    """The memory of all these tensors, in bytes; tensors on torch's meta device take none."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if not tensor.is_meta)
