"""Exchanges many tensors in few operations: each costs a round trip between the ranks, however small its tensor is."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

MOST = 25 * 2**20  # bytes in a bucket, unless one tensor has more; also the size of DistributedDataParallel's


@torch.no_grad()
def exchange(tensors: Iterable[Tensor], operation: Callable[[Tensor], object]) -> None:
    """Apply ``operation`` in place to all tensors, joined to buckets (n,) of one dtype and device each.

    If it is a collective operation, all its ranks must have tensors of the same shapes and dtypes, in the same order.
    """
    for bucket in buckets(tensors):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            operation(bucket[0].view(-1))
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        operation(flat)
        for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(part.view_as(tensor))


def exchange_gradients(parameters: Sequence[nn.Parameter], operation: Callable[[Tensor], object]) -> None:
    """Apply ``operation``, a sum or mean over ranks, in place to the gradients of all parameters, as ``exchange``.

    A rank's missing gradient counts as zeros, and becomes the result unless it is missing on all ranks. Only ranks that
    miss one wait for the device.
    """
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    counts = torch.ones(len(parameters), dtype=parameters[0].dtype, device=parameters[0].device)
    missing = [number for number, p in enumerate(parameters) if p.grad is None]
    for number in missing:
        counts[number] = 0
    exchange([*gradients, counts], operation)
    for number in missing:
        if counts[number]:
            parameters[number].grad = gradients[number]


def buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in lists of one dtype and device, each of at most MOST bytes or of one tensor."""
    filling: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    sizes = Counter[tuple[torch.dtype, torch.device]]()
    for tensor in tensors:
        kind = tensor.dtype, tensor.device
        if kind in filling and sizes[kind] + tensor.nbytes > MOST:
            yield filling.pop(kind)
            sizes[kind] = 0
        filling.setdefault(kind, []).append(tensor)
        sizes[kind] += tensor.nbytes
    yield from filling.values()
