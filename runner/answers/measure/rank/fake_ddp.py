"""A Python replacement for torch's DistributedDataParallel, whose reducer needs tensors with real memory.

Buckets follow torch's own rule and, as in torch, are rebuilt in the order in which the first gradients arrive.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

MEGABYTE = 1 << 20


class Replicated(nn.Module):
    """DistributedDataParallel for fake tensors, with its arguments that affect memory or communication."""

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        *,
        bucket_cap_mb: float = 25,
        gradient_as_bucket_view: bool = False,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        broadcast_buffers: bool = True,
        forward_sync_buffers: bool = True,
    ):
        super().__init__()
        self.module = module
        self._cap, self._as_view = int(bucket_cap_mb * MEGABYTE), gradient_as_bucket_view
        self._looks_for_unused = find_unused_parameters and not static_graph
        self._broadcasts = broadcast_buffers and forward_sync_buffers
        self._exchanges = self._did_exchange = True
        self._hook: tuple[Any, Callable[..., Any]] | None = None
        self._parameters_to_train = [p for p in module.parameters() if p.requires_grad]
        for parameter in self._parameters_to_train:
            parameter.register_post_accumulate_grad_hook(self._arrived)
        self._order: list[nn.Parameter] = []
        self._make_buckets(self._parameters_to_train[::-1], self._cap if self._looks_for_unused else sys.maxsize)
        self._is_rebuilt = self._looks_for_unused

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._broadcasts and self._did_exchange:
            self._broadcast_buffers()
        self._did_exchange = self._exchanges
        if not self._is_rebuilt and len(self._order) == len(self._parameters_to_train):
            self._make_buckets(self._order, self._cap)
            self._is_rebuilt = True
        self._order = []
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which gradients are not reduced."""
        self._exchanges = False
        try:
            yield
        finally:
            self._exchanges = True

    def register_comm_hook(self, state: Any, hook: Callable[..., Any]) -> None:
        """Set a hook that replaces the all-reduce of buckets, as in DistributedDataParallel."""
        self._hook = state, hook

    def _make_buckets(self, order: Sequence[nn.Parameter], most: int) -> None:
        tensors: list[Tensor] = [*order]
        assignment, _ = dist._compute_bucket_assignment_by_size(tensors, [most], [False] * len(order))
        buckets = [
            _Bucket(index, len(assignment), [order[at] for at in indices]) for index, indices in enumerate(assignment)
        ]
        self._bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters()}

    def _arrived(self, parameter: nn.Parameter) -> None:
        if not self._did_exchange:
            return
        self._order.append(parameter)
        bucket = self._bucket_of[parameter]
        if bucket.fill(parameter, as_view=self._as_view):
            if self._hook is None:
                dist.all_reduce(bucket.flat)
            else:
                self._hook[1](self._hook[0], bucket)
        if self._looks_for_unused and len(self._order) == len(self._parameters_to_train):
            dist.all_reduce(torch.zeros(len(self._order), dtype=torch.int32))

    def _broadcast_buffers(self) -> None:
        buffers = [*self.module.buffers()]
        for dtype in dict.fromkeys(buffer.dtype for buffer in buffers):
            dist.broadcast(torch.cat([buffer.reshape(-1) for buffer in buffers if buffer.dtype is dtype]), src=0)


class _Bucket:
    """Gradients that are reduced together, with the interface of torch's GradBucket that hooks use."""

    def __init__(self, index: int, count: int, parameters: list[nn.Parameter]):
        self._index, self._count, self._own = index, count, parameters
        self._places, self._filled = {parameter: position for position, parameter in enumerate(parameters)}, 0
        first = parameters[0]
        self.flat = torch.empty(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)

    def fill(self, parameter: nn.Parameter, *, as_view: bool) -> bool:
        """Copy a gradient into the bucket; return whether all are in it. ``as_view``: make it a view of the bucket."""
        part = self.gradients()[self._places[parameter]]
        part.copy_(parameter.grad)  # type: ignore[arg-type]
        if as_view:
            parameter.grad = part
        self._filled = (self._filled + 1) % len(self._own)
        return not self._filled

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._index == self._count - 1

    def buffer(self) -> Tensor:
        return self.flat

    def set_buffer(self, flat: Tensor) -> None:
        self.flat = flat

    def parameters(self) -> list[nn.Parameter]:
        return self._own

    def gradients(self) -> list[Tensor]:
        parts = self.flat.split([p.numel() for p in self._own])
        return [part.view(p.shape) for p, part in zip(self._own, parts, strict=True)]
