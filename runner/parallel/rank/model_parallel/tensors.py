"""Tensors that several ranks may share: this rank's part, and norms, averages and sums over the ranks."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor: its shard of a DTensor, else the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def copies(tensor: Tensor) -> int:
    """Number of ranks of a tensor's mesh that hold the same part of it."""
    if not isinstance(tensor, DTensor):
        return 1
    dimensions = zip(tensor.placements, tensor.device_mesh.shape, strict=True)
    count = 1
    for placement, size in dimensions:
        count *= size if isinstance(placement, Replicate) else 1
    return count


@torch.no_grad()
def shared_norm(gradients: Iterable[tuple[Tensor, int]], add_up: Callable[[Tensor], Tensor], device: Any) -> Tensor:
    """The norm of a complete model's gradients, (), the same on each rank; communicates once.

    ``gradients``: this rank's parts, each with the number of ranks that hold it; ``add_up``: sums over all ranks.
    """
    by_copies: dict[int, list[Tensor]] = {}
    for gradient, count in gradients:
        by_copies.setdefault(count, []).append(gradient)
    square = torch.zeros(1, dtype=torch.float64, device=device)
    for count, parts in by_copies.items():
        square += torch.stack(torch._foreach_norm(parts)).double().square().sum() / count
    return add_up(square)[0].sqrt()


def average(parameters: Iterable[Tensor], group: Any) -> None:
    """Average the gradients of plain parameters over a group; a missing gradient counts as zeros."""
    add_up(parameters, group, divisor=dist.get_world_size(group))


@torch.no_grad()
def add_up(parameters: Iterable[Tensor], group: Any, *, divisor: int = 1) -> None:
    """Sum the gradients of plain parameters over a group and divide by ``divisor``; a missing one counts as zeros."""
    buckets: dict[torch.dtype, list[Tensor]] = {}
    for parameter in parameters:
        buckets.setdefault(parameter.dtype, []).append(parameter)
    for found in buckets.values():
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in found])
        dist.all_reduce(flat, group=group)
        if divisor > 1:
            flat /= divisor
        for parameter, total in zip(found, flat.split([p.numel() for p in found]), strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(total.view_as(parameter.grad))
