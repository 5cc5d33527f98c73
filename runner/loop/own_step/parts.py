"""How a step calls parts of the model, and how their gradients are exchanged."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from manyheads.runner.parallel.rank.parallel import Parallel


class ThroughRoot:
    """A model whose parts are called through its root, around whose forward pass a strategy gathers the weights."""

    def __init__(self, root: nn.Module, path: str = ""):
        self._root, self._path = root, path

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        root = self._root
        if not self._path:
            return root(*inputs, **named)
        root.forward = root.get_submodule(self._path).__call__
        try:
            return root(*inputs, **named)
        finally:
            del root.forward

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._root.get_submodule(self._path), name)
        return ThroughRoot(self._root, f"{self._path}.{name}".lstrip(".")) if isinstance(value, nn.Module) else value


@torch.no_grad()
def exchange(parameters: Sequence[nn.Parameter], parallel: Parallel) -> None:
    """Average gradients over replicas; one that no rank has stays absent. Waits for the device."""
    if parallel.data_size == 1:
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has = torch.tensor([p.grad is not None for p in parameters], device=parallel.device)
    flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), has.to(gradients[0].dtype)])
    total = parallel.reduce(flat) / parallel.data_size
    *averages, counts = total.split([*(p.numel() for p in parameters), len(parameters)])
    for parameter, average, count in zip(parameters, averages, counts.tolist(), strict=True):
        parameter.grad = average.view_as(parameter).to(parameter.dtype) if count else None
