"""What strategies over torch.distributed share: ranks that meet in a process group."""

import ctypes
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyheads.runner.parallel.rank.parallel import Parallel, Reduction

OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class ProcessGroup(Parallel):
    """Ranks of one process group. ``backend``: "nccl", "gloo", or "auto": nccl on GPUs, gloo on CPUs.

    ``timeout``: seconds that a collective may take.
    """

    def __init__(self, *, timeout: float, backend: str = "auto", **place: Any):
        super().__init__(**place)
        usual = "nccl" if self.device.type == "cuda" else "gloo"
        self.timeout, self.backend = timeout, usual if backend == "auto" else backend

    @property
    def summary(self) -> str:
        return f"{self.ranks} over {self.backend}"

    def join(self) -> None:
        super().join()
        dist.init_process_group(
            self.backend,
            init_method=os.environ.get("MANYHEADS_INIT_METHOD", "env://"),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timedelta(seconds=self.timeout),
            device_id=self.device if self.backend == "nccl" else None,  # connects, or fails, at once
        )

    def leave(self) -> None:
        if not dist.is_initialized():
            return
        groups = [*dist.distributed_c10d._world.pg_map]
        dist.destroy_process_group()
        if torch.__version__ < "2.8":
            _keep(groups)

    def collectives(self) -> int:
        return dist.group.WORLD._get_sequence_number_for_group() if dist.is_initialized() else 0  # type: ignore[union-attr]

    def share_buffers(self, model: nn.Module) -> None:
        for buffer in self.unwrap(model).buffers():
            dist.broadcast(buffer, src=0)

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        dist.all_reduce(values, op=OPERATIONS[operation])
        return values

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values


def _keep(groups: list[dist.ProcessGroup]) -> None:
    """Keep destroyed groups until the process ends.

    Before torch 2.8, deallocating one joins Gloo's threads while holding the GIL, which such a thread may need in order
    to release a tensor: the rank then hangs after its last update. Source: pytorch/pytorch#154976.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(groups))
