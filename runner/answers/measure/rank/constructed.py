"""The baseline's model against the module as its constructor returned it, before anything was converted.

All strategies convert a model in the same way, so what that loses can't be seen by comparing them with one another.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from manyheads.runner.answers.measure.steps_task import LargestDifference
from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.checkpoint.rank.load import largest_entry
from manyheads.runner.checkpoint.rank.tied import names_of
from manyheads.runner.records.rounding import relative

BEFORE = -1  # the first step


class Tensors:
    """Copies of a model's parameters and buffers by name, and which parameters are one under several names."""

    def __init__(self, model: nn.Module):
        named = {
            "weight": model.named_parameters(remove_duplicate=False),
            "buffer": model.named_buffers(remove_duplicate=False),
        }
        self._tensors = {
            name: (kind, tensor.detach().clone())
            for kind, tensors in named.items()
            for name, tensor in tensors
            if not is_lazy(tensor)
        }
        self._tied = {name: names for names in names_of(model).values() for name in names}

    def changes(self, later: "Tensors") -> dict[str, LargestDifference]:
        """The tensors that are not the same ``later``, by name; rounding to another precision is no change."""
        changed: dict[str, LargestDifference] = {}
        for name, (kind, tensor) in self._tensors.items():
            _, other = later._tensors.get(name, (kind, None))
            size = math.inf if self._tied.get(name) != later._tied.get(name) else _difference(tensor, other)
            if size:
                changed[name] = {"kind": kind, "name": name, "largest": size, "step": BEFORE, "first": BEFORE}
        return changed


def _difference(before: Tensor, after: Tensor | None) -> float:
    """The relative difference beyond rounding; inf if values of the other kind, or of another shape, are left."""
    if after is None or before.shape != after.shape:
        return math.inf
    kinds = [(tensor.is_complex(), tensor.is_floating_point()) for tensor in (before, after)]
    if kinds[0] != kinds[1]:
        return math.inf
    is_exact = not any(kinds[0])
    rounding = 0.0 if is_exact else max(torch.finfo(tensor.dtype).eps for tensor in (before, after))
    wide = before.dtype if is_exact else torch.complex128 if before.is_complex() else torch.float64
    size = relative(largest_entry(before.to(wide) - after.to(wide)), largest_entry(before))
    return size if size > rounding else 0.0


class Constructed:
    """Follows the model of a rank from its constructor to the first step."""

    def __init__(self) -> None:
        self._changes: dict[str, LargestDifference] = {}
        self._complete: Tensors | None = None

    def convert(self, model: nn.Module, dtype: torch.dtype) -> nn.Module:
        """Convert a model as training does, and note what that changes."""
        before = Tensors(model)
        model = converted(model, dtype)
        self._changes |= before.changes(Tensors(model))
        return model

    def complete(self, model: nn.Module) -> None:
        """The model has all its weights, also those from a file or from the data."""
        self._complete = Tensors(model)

    def changes(self, model: nn.Module) -> list[LargestDifference]:
        """The differences from the constructed module when the first step begins."""
        assert self._complete is not None
        return [*(self._changes | self._complete.changes(Tensors(model))).values()]
