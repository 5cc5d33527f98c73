"""A few numbers on each module's output for each sample, to find the first module that computes a different one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.parallel.rank.structure import tensors_in

# Rows of numbers about one tensor's entries for each sample, by device; several rows where a module has folded
# something else into the first dimension, such as windows.
Rows = dict[str, Tensor]
FLOOR = 1e-2  # smaller numbers than this fraction of a tensor's largest are compared relative to that


@dataclass
class TracedCall:
    """One call of a module: numbers on its input tensors, and on the first tensor that it returned."""

    inputs: list[Rows] = field(default_factory=list)
    output: Rows = field(default_factory=dict)


class Trace:
    """Follows the forward passes of one update through hooks on every module of the user's own ``model``."""

    def __init__(self, model: nn.Module, devices: list[torch.device]):
        self._model = model
        self._devices = [str(device) for device in devices]
        self._calls: dict[tuple[int, str], TracedCall] = {}  # by micro-batch and module's name, in order of completion
        self._counts: dict[Any, int] = {}
        self._own = threading.local()  # DataParallel calls its replicas from threads
        self.drew: list[str] = []  # modules in which random numbers were drawn, in order of completion

    @contextmanager
    def following(self) -> Iterator[None]:
        """A context with hooks on all modules."""
        handles = []
        for name, module in self._model.named_modules():
            handles.append(module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            handles.append(module.register_forward_hook(partial(self._complete, name), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def samples(self, micro_batches: list[list[int]]) -> dict[str, Any]:
        """The numbers by module and call, over all samples of the update, for ``torch.save``.

        ``micro_batches``: the indices of each one's samples; none for one that only kept this rank in step.
        """
        counted = [number for number, indices in enumerate(micro_batches) if indices]
        calls: dict[str, Any] = {}
        for name in dict.fromkeys(name for micro, name in self._calls if micro in counted):
            parts = [(self._calls.get((micro, name), TracedCall()), len(micro_batches[micro])) for micro in counted]
            calls[name] = {
                "inputs": [self._joined(column) for column in self._columns(parts)],
                "output": self._joined([(call.output, size) for call, size in parts]),
            }
        return {"samples": [index for indices in micro_batches for index in indices], "calls": calls}

    def _columns(self, parts: list[tuple[TracedCall, int]]) -> list[list[tuple[Rows, int]]]:
        width = max(len(call.inputs) for call, _ in parts)
        return [[(call.inputs[i] if i < len(call.inputs) else {}, size) for call, size in parts] for i in range(width)]

    def _joined(self, parts: list[tuple[Rows, int]]) -> Tensor | None:
        """(samples, rows of each, numbers), or None if the first dimension is not the samples."""
        joined = []
        for rows, size in parts:
            tensors = [rows[device] for device in self._devices if device in rows] or list(rows.values())
            length = sum(len(tensor) for tensor in tensors)
            if not length or length % size:
                return None
            joined.append(torch.cat(tensors).view(size, length // size, -1))
        return torch.cat(joined) if joined and len({part.shape[1] for part in joined}) == 1 else None

    def _enter(self, name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        tensors = [*tensors_in((args, kwargs))]
        state = self._own
        if name == "":  # the model itself: a micro-batch begins
            state.device = tensors[0].device if tensors else torch.device("cpu")
            state.micro = self._count(("", str(state.device)))
            state.stack = []
        if hasattr(state, "stack"):
            state.stack.append(([numbers(tensor) for tensor in tensors], generators(state.device)))

    def _complete(self, name: str, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        state = self._own
        if not getattr(state, "stack", None):
            return
        inputs, before = state.stack.pop()
        device = str(state.device)
        key = (state.micro, f"{name}#{self._count((state.micro, name, device))}")
        call = self._calls.setdefault(key, TracedCall(inputs=[{} for _ in inputs]))
        for rows, own_rows in zip(call.inputs, inputs, strict=False):
            rows[device] = own_rows
        for tensor in islice(tensors_in(output), 1):
            call.output[device] = numbers(tensor)
        if not all(map(torch.equal, before, generators(state.device))) and name not in self.drew:
            self.drew.append(name)

    def _count(self, key: Any) -> int:
        self._counts[key] = self._counts.get(key, -1) + 1
        return self._counts[key]


def culprit(
    baseline: dict[str, Any], compared: dict[str, Any], tolerance: float
) -> tuple[tuple[int, str] | None, bool | None]:
    """The first module whose output differs for the same input, with its position; and whether the outputs agree.

    The second is None if the model's output can't be compared.
    """
    row_of = {index: row for row, index in enumerate(baseline["samples"])}
    chosen = torch.tensor([row_of[index] for index in compared["samples"]], dtype=torch.long)
    outputs = None
    for number, (key, call) in enumerate(compared["calls"].items()):
        name = key.rpartition("#")[0]
        other = baseline["calls"].get(key)
        if other is None:
            continue
        same = agree(other["output"], call["output"], chosen, tolerance)
        if name == "":
            outputs = same
        pairs = zip(other["inputs"], call["inputs"], strict=False)
        given = [agree(theirs, ours, chosen, tolerance) for theirs, ours in pairs]
        if same is False and given and all(given):
            return (number, name), False
    return None, outputs


def agree(baseline: Tensor | None, compared: Tensor | None, chosen: Tensor, tolerance: float) -> bool | None:
    """Whether this rank's samples have the baseline's numbers; None if they can't be compared."""
    if baseline is None or compared is None or not len(compared) or baseline.shape[1:] != compared.shape[1:]:
        return None
    other = baseline[chosen]
    if not torch.equal(other.isfinite(), compared.isfinite()):
        return False
    other, compared = (torch.nan_to_num(t, nan=0.0, posinf=0.0, neginf=0.0) for t in (other, compared))
    size = torch.maximum(other.abs(), compared.abs()).amax(dim=-1, keepdim=True)
    size = torch.maximum(size, FLOOR * size.max())
    return bool(((other - compared).abs() <= tolerance * size).all())


def numbers(tensor: Tensor) -> Tensor:
    """For each entry of the first dimension the sum, the norm, and the product with a fixed vector: (N, 3) float64.

    Scaled so that none is larger than the norm.
    """
    if tensor.ndim == 0 or tensor.numel() == 0:
        return torch.zeros(0, 3, dtype=torch.float64)
    rows = tensor.detach().reshape(len(tensor), -1)
    rows = (torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows).to(torch.float64)
    width = rows.shape[1]
    vector = torch.arange(1, width + 1, dtype=torch.float64, device=rows.device).mul_(12.9898).sin_().mul_(43758.5453)
    vector = vector.frac_().sub_(0.25)
    return torch.stack([rows.sum(1) / width**0.5, rows.norm(dim=1), rows @ vector / vector.norm()], dim=1).cpu()


def generators(device: torch.device) -> list[Tensor]:
    """The state of the generators that a module on this device may draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def unsynchronized(module: nn.Module) -> bool:
    """Whether a module's statistics cover only the rank's own share of the batch."""
    return isinstance(module, _BatchNorm) and "Sync" not in type(module).__name__
