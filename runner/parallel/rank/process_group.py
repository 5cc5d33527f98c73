"""Bases of strategies over torch.distributed: ranks that meet in a process group, and often hold a replica each.

The operation at which a rank waits is known from torch's flight recorder, which keeps the last 2,000. Source:
https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html. In torch 2.6 NCCL has one, in 2.11 Gloo too.
"""

import ctypes
import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C import _distributed_c10d
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.flat_buckets import exchange
from manyheads.runner.parallel.rank.parallel import Parallel, Reduction
from manyheads.runner.run.heartbeat import Pending
from manyheads.runner.wording import counted

DUMPS = {"nccl": "_dump_nccl_trace_json", "gloo": "_dump_fr_trace_json"}  # functions of torch, if it has them
BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}


def pending(backend: str) -> Pending | None:
    """The first operation that this rank has begun and not completed; None if there is none, or no recorder."""
    dump: Callable[..., str] | None = getattr(_distributed_c10d, DUMPS.get(backend, ""), None)
    if dump is None:
        return None
    entries = json.loads(dump(includeCollectives=True, onlyActive=True)).get("entries", ())
    waiting = [record for record in entries if record["state"] != "completed" and not record["retired"]]
    return described(min(waiting, key=lambda record: record["record_id"])) if waiting else None


def described(entry: Mapping[str, Any]) -> Pending:
    """The operation of a recorder's entry, whose name is such as gloo:all_reduce, with this rank's input tensors."""
    name = entry["profiling_name"].rpartition(":")[2].strip("_").split(" ")[0]
    sizes = zip(entry["input_sizes"], entry["input_dtypes"], strict=False)
    return Pending.of(name, sum(math.prod(shape) * BYTES.get(dtype, 1) for shape, dtype in sizes))


TCP = "tcp://"
OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class ProcessGroup(Parallel):
    """Ranks of one process group. ``backend``: "nccl", "gloo", or "auto": nccl on GPUs, gloo on CPUs.

    ``timeout``: seconds that a collective may take.
    """

    def __init__(self, *, timeout: float, backend: str = "auto", **position: Any):
        super().__init__(**position)
        usual = "nccl" if self.device.type == "cuda" else "gloo"
        self.timeout, self.backend = timeout, usual if backend == "auto" else backend

    @property
    def summary(self) -> str:
        return f"{counted(self.world_size, 'rank')} over {self.backend}"

    def join(self) -> None:
        super().join()
        timeout = timedelta(seconds=self.timeout)
        dist.init_process_group(
            self.backend,
            store=self._store(timeout),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timeout,
            device_id=self.device if self.backend == "nccl" else None,  # connects, or fails, at once
        )

    def _store(self, timeout: timedelta) -> dist.Store | None:
        """The store in which the ranks meet, by MANYHEADS_MEETING: a file, or an address, port and prefix of keys.

        None if they meet by torch's own env://. Not by torch's file://, which cuts a path at characters such as # and
        waits where no other rank comes.
        """
        meeting = os.environ.get("MANYHEADS_MEETING")
        if meeting is None:
            return None
        if meeting.startswith(TCP):
            address, port, prefix = meeting.removeprefix(TCP).split(" ")
            remote = dist.TCPStore(address, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
            return dist.PrefixStore(prefix, remote)
        store = dist.FileStore(meeting, self.world_size)
        store.set_timeout(timeout)
        return store

    def leave(self) -> None:
        if not dist.is_initialized():
            return
        groups = [*dist.distributed_c10d._world.pg_map]
        dist.destroy_process_group()
        if torch.__version__ < "2.8":
            _keep(groups)

    def collectives(self) -> int:
        return dist.group.WORLD._get_sequence_number_for_group() if dist.is_initialized() else 0  # type: ignore[union-attr]

    def pending(self) -> Pending | None:
        return pending(self.backend)

    def share_buffers(self, model: nn.Module) -> None:
        exchange(self.unwrap(model).buffers(), lambda flat: dist.broadcast(flat, src=0))

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


_NAMES = inspect.signature(nn.parallel.DistributedDataParallel).parameters  # or another argument
NO_BROADCAST = {"forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False}


class Replicas(ProcessGroup):
    """A replica on each rank, whose gradients DistributedDataParallel averages in buckets during the backward pass.

    The options are torch's own arguments; ``sync_batchnorm``: GPUs only.
    Source: https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html.
    """

    is_replica = True

    def __init__(
        self,
        *,
        bucket_cap_mb: float,
        gradient_as_bucket_view: bool,
        static_graph: bool,
        find_unused_parameters: bool,
        broadcast_buffers: bool | str,
        sync_batchnorm: bool,
        **position: Any,
    ):
        super().__init__(**position)
        self.sync_batchnorm, self.broadcast_buffers = sync_batchnorm, broadcast_buffers
        self.options: dict[str, Any] = {
            "bucket_cap_mb": bucket_cap_mb,
            "gradient_as_bucket_view": gradient_as_bucket_view,
            "static_graph": static_graph,
            "find_unused_parameters": find_unused_parameters,
        }

    def place(self, model: nn.Module) -> nn.Module:
        if self.sync_batchnorm:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return super().place(model)

    def wrap_model(self, model: nn.Module) -> nn.Module:
        if not any(p.requires_grad for p in model.parameters()):
            raise ConfigurationError(
                "parallel: the model has no trainable parameters, so ranks have no gradients to exchange. Set "
                "parallel=single.",
                key="parallel",
            )
        ids = [self.device] if self.device.type == "cuda" else None
        broadcasts = reads_buffers(model) if self.broadcast_buffers == "auto" else self.broadcast_buffers
        options = self.options if broadcasts else {**self.options, **NO_BROADCAST}
        return nn.parallel.DistributedDataParallel(model, device_ids=ids, **options)

    def prime(self, step: Callable[[], None]) -> None:
        # Buckets are rebuilt in the order of the first backward, when the second forward begins; other buckets
        # sum in another order, so that a resumed run would differ from an undisturbed one.
        step()
        step()

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        return self._nothing if last else model.no_sync()  # type: ignore[operator]

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def reads_buffers(model: nn.Module) -> bool:
    """Whether a training pass may depend on a buffer; BatchNorm, which only writes its statistics then, does not."""
    modules = (module for module in model.modules() if not isinstance(module, _BatchNorm))
    return any(True for module in modules for _ in module.buffers(recurse=False))


class SharedScaler(torch.amp.GradScaler):
    """A GradScaler shared by all ranks. ``largest``: reduces a tensor to the maximum over all ranks, in place."""

    def __init__(self, device: str, largest: Callable[[Tensor], Tensor], **options: Any):
        super().__init__(device, **options)
        self._largest = largest

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[torch.device, Tensor]:
        infs = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        largest = torch.stack([found_inf.clone(), *(inf.to(found_inf.device) for inf in infs.values())]).amax(0)
        return {found_inf.device: self._largest(largest)}
