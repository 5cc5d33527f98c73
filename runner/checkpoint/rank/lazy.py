"""Tensors of a checkpoint that are still on disk, in a state of nested mappings and lists."""

import copy
import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor

from manyheads.runner import checkpoint
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import Damaged

MOST_SHARED = 100  # most bytes of a checkpoint's tensors for each byte of its files


class RankGroup(Protocol):
    """The ranks that save or load a checkpoint together.

    ``records``: whether this rank writes the run's files. ``shares_model``: whether each has only a part of the model.
    ``gather``: returns every rank's value, in rank order.
    """

    rank: int
    world_size: int
    shares_model: bool

    @property
    def records(self) -> bool: ...

    def gather(self, value: Any) -> list[Any]: ...


class TensorSpec:
    """A tensor whose values are elsewhere, on disk or in part on other ranks. ``shape``: of the complete tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Lazy(TensorSpec):
    """A tensor that is still on disk."""

    shape: torch.Size

    def read(self) -> Tensor:
        """Read the tensor to the CPU, anew at each call."""
        raise NotImplementedError


def tensors(state: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor in a state, with its path, such as ``model/head.weight``."""
    if isinstance(state, (Tensor, TensorSpec)):
        yield key, state
    elif isinstance(state, (dict, list, tuple)):
        for name, child in state.items() if isinstance(state, dict) else enumerate(state):
            yield from tensors(child, f"{key}/{name}" if key else str(name))


def sizes(state: Any) -> dict[str, int]:
    """The bytes of every complete tensor in a state, by its path."""
    return {key: math.prod(tensor.shape) * tensor.dtype.itemsize for key, tensor in tensors(state)}


def each_of(mapping: dict[Any, Any], change: Callable[[Any], Any]) -> dict[Any, Any]:
    """The mapping with changed values; keeps the version numbers of a state_dict, which some modules need to load."""
    clone = copy.copy(mapping)
    clone.update({name: change(value) for name, value in mapping.items()})
    return clone


def replaced(value: Any, kind: type | tuple[type, ...], change: Callable[[Any], Any]) -> Any:
    """The structure with everything of this type, or of one of these, changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return each_of(value, lambda child: replaced(child, kind, change))
    if isinstance(value, (list, tuple)):
        return type(value)([replaced(child, kind, change) for child in value])
    return value


def real(value: Any) -> Any:
    """The structure with every tensor that is still on disk read."""
    return replaced(value, Lazy, lambda stored: stored.read())


def refuse_tensor_bombs(state: Any, size: int) -> None:
    """Raises Damaged for tensors far larger than their files, which have ``size`` bytes.

    With strides, or pieces that are used repeatedly, a few bytes can describe a tensor of any size, which a copy would
    allocate in full. Some repetition is normal: shared weights are stored once, under several names.
    """
    total = sum(sizes(state).values())
    if total > MOST_SHARED * size:
        raise Damaged(f"its tensors would take {total:,} bytes, more than {MOST_SHARED} times its own size")


@cache
def folder_format() -> ModuleType:
    """The module ``rank.folders`` of the package that writes folders. Raises ConfigurationError if there is none."""
    for module in pkgutil.iter_modules(checkpoint.__path__):
        if module.ispkg and module.name != "rank":
            return importlib.import_module(f"{checkpoint.__name__}.{module.name}.rank.folders")
    raise ConfigurationError(
        "checkpoint.format: this installation does not support sharded checkpoints. Set it to single.",
        key="checkpoint.format",
    )
