"""The ranks of one replica, and what they exchange among themselves through the host's memory."""

import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp, TCPStore
from torch.nn.functional import pad

INSIDE_SECONDS = 540  # for which a replica's ranks wait for each other: the launcher ends a replica that hangs


class ReplicaGroup:
    """This rank among the ``size`` of its replica; one rank alone exchanges nothing.

    Every method is a collective operation of all of them, after they have met in torch's default process group.
    """

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self._over: Any = dist.new_group(backend="gloo") if size > 1 and dist.get_backend() != "gloo" else None

    def add(self, values: Tensor) -> Tensor:
        """The sum over the ranks, in place, (n,) on the CPU."""
        if self.size > 1:
            dist.all_reduce(values, group=self._over)
        return values

    def most(self, values: list[float]) -> list[float]:
        """The elementwise maximum over the ranks."""
        if self.size == 1:
            return values
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers, op=ReduceOp.MAX, group=self._over)
        return numbers.tolist()

    def first(self, value: Any) -> Any:
        """The first rank's small picklable value."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0, group=self._over)
        return values[0]

    def scattered(self, values: Tensor) -> Tensor:
        """This rank's part of the sum over the ranks of ``values``, (n,) on the CPU, as (ceil(n / size),)."""
        if self.size == 1:
            return values
        width = -(-len(values) // self.size)
        part = values.new_empty(width)
        dist.reduce_scatter_tensor(part, pad(values, (0, width * self.size - len(values))), group=self._over)
        return part

    def gathered(self, part: Tensor) -> Tensor:
        """All ranks' parts, joined: the inverse of ``scattered``, with its padding."""
        if self.size == 1:
            return part
        values = part.new_empty(self.size * len(part))
        dist.all_gather_into_tensor(values, part, group=self._over)
        return values


def store_on(host: str, timeout: timedelta) -> TCPStore:
    """A store that listens on this address alone; torch's own would listen on all interfaces."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach(),
    )
