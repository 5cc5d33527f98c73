"""parallel=horovod: a rank for each device, gradients reduced by Horovod's DistributedOptimizer.

Source: https://horovod.readthedocs.io/en/stable/pytorch.html. Horovod must be built against the installed torch:
``manyheads install-horovod``.
"""

import inspect
import os
from contextlib import AbstractContextManager
from functools import partialmethod
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.horovod import GROUP_MB
from manyheads.runner.parallel.horovod_installation import OPEN_MPI_MEMORY
from manyheads.runner.parallel.rank.parallel import Parallel, Reduction
from manyheads.runner.run.heartbeat import machine_folder
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.wording import counted

COMPRESSIONS = {"none": hvd.Compression.none, "fp16": hvd.Compression.fp16}
GROUP_BYTES = GROUP_MB * 2**20


class Horovod(Parallel):
    """The options are DistributedOptimizer's arguments and Horovod's settings.

    ``timeout``: seconds that a collective over Gloo may take; ``fusion_threshold``: MB of gradients that are reduced
    together; ``cycle_time``: milliseconds between two checks for gradients that are ready; ``timeline``: a file for
    chrome://tracing.
    """

    gradient_kinds = ()
    is_replica = True

    def __init__(
        self,
        *,
        timeout: float,
        op: str,
        compression: str,
        gradient_predivide_factor: float,
        backward_passes_per_step: int,
        num_groups: int | str,
        fusion_threshold: float,
        cycle_time: float,
        timeline: str | None,
        sync_batchnorm: bool,
        **position: Any,
    ):
        super().__init__(**position)
        self.op, self.compression = op, compression
        self.backward_steps = op == "adasum"
        self.gradient_predivide_factor = gradient_predivide_factor
        self.backward_passes_per_step = backward_passes_per_step
        self.num_groups, self.sync_batchnorm = num_groups, sync_batchnorm
        self.settings = {
            "HOROVOD_FUSION_THRESHOLD": str(int(fusion_threshold * 2**20)),
            "HOROVOD_CYCLE_TIME": str(cycle_time),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(timeout)),
            # A group is always reduced as one; if it were fused with others, the order of summation would depend on
            # timing.
            "HOROVOD_DISABLE_GROUP_FUSION": "1",
        }
        if timeline is not None:
            self.settings["HOROVOD_TIMELINE"] = timeline

    @property
    def summary(self) -> str:
        controller = "MPI" if hvd.mpi_enabled() else "Gloo"
        data = "NCCL" if self.device.type == "cuda" and hvd.nccl_built() else controller
        control = f", controlled by {controller}" if data != controller else ""
        return f"{counted(self.world_size, 'rank')} over {data}{control}"

    def join(self) -> None:
        super().join()
        folder = machine_folder(RankInfo(self.rank, self.local_rank, self.world_size))
        memory = {} if folder is None else dict.fromkeys(OPEN_MPI_MEMORY, str(folder))
        os.environ.update({**memory, **self.settings})  # read when Horovod starts
        hvd.init()
        if (hvd.rank(), hvd.size()) != (self.rank, self.world_size):
            raise ConfigurationError(
                f"launcher: Horovod counts {hvd.size()} ranks where {self.world_size} were started. Set "
                "launcher=horovodrun, or launcher=mpirun with a Horovod built with MPI.",
                key="launcher",
            )

    def leave(self) -> None:
        hvd.shutdown()

    # -- assembly ------------------------------------------------------------------------------------

    def place(self, model: nn.Module) -> nn.Module:
        if self.sync_batchnorm:
            model = with_sync_batchnorm(model)
        return super().place(model)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        _broadcast(model.state_dict())
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise ConfigurationError.at(
                "parallel", "horovod", ": the model has no trainable parameters. Use parallel=single."
            )
        return hvd.DistributedOptimizer(
            _of_groups(optimizer),
            named_parameters=named,
            compression=COMPRESSIONS[self.compression],
            backward_passes_per_step=self.backward_passes_per_step,
            op={"average": hvd.Average, "sum": hvd.Sum, "adasum": hvd.Adasum}[self.op],
            gradient_predivide_factor=self.gradient_predivide_factor,
            groups=self._groups([p for _, p in named]),
        )

    def _groups(self, parameters: list[nn.Parameter]) -> int | None:
        if self.num_groups != "auto":
            return int(self.num_groups) or None
        if self.op == "adasum" or self.gradient_predivide_factor != 1:  # neither supports groups
            return None
        size = sum(p.numel() * p.element_size() for p in parameters)
        return min(len(parameters), 1 + size // GROUP_BYTES)

    def restored(self, model: nn.Module, optimizer: Optimizer) -> None:
        _broadcast(model.state_dict())
        if optimizer.state:  # without state, Horovod would create it by a step, which changes the weights
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    # -- one update ----------------------------------------------------------------------------------

    def synchronize(self, optimizer: Optimizer) -> None:
        optimizer.synchronize()  # type: ignore[attr-defined]

    def stepping(self, optimizer: Optimizer) -> AbstractContextManager:
        # Adasum exchanges what its own step has changed, so there is no synchronization to skip.
        return self._nothing if self.op == "adasum" and self.world_size > 1 else optimizer.skip_synchronize()  # type: ignore[attr-defined]

    # -- evaluation, metrics, checkpoints ------------------------------------------------------------

    def share_buffers(self, model: nn.Module) -> None:
        _broadcast(dict(model.named_buffers()))

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        # The name is a key of Horovod's cache, whose entries keep their shape.
        name = f"manyheads.{operation}.{values.dtype}.{values.numel()}"
        return hvd.allreduce_(values, op={"sum": hvd.Sum, "max": hvd.Max}[operation], name=name)

    def gather(self, value: Any) -> list[Any]:
        return hvd.allgather_object(value, name="manyheads.gather")


def _broadcast(tensors: dict[str, Tensor]) -> None:
    """Give every rank the tensors of rank 0, in place. Horovod has no complex numbers."""
    hvd.broadcast_parameters({name: as_real(tensor) for name, tensor in tensors.items()}, root_rank=0)


def with_sync_batchnorm(module: nn.Module) -> nn.Module:
    """The module with each BatchNorm replaced by Horovod's, which takes statistics over all ranks; GPUs only."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, hvd.SyncBatchNorm):
        other = hvd.SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
        )
        other.load_state_dict(module.state_dict())
        for parameter, theirs in zip(other.parameters(), module.parameters(), strict=True):
            parameter.requires_grad_(theirs.requires_grad)
        return other.to(next(module.parameters(), torch.zeros(0)))
    for name, child in module.named_children():
        setattr(module, name, with_sync_batchnorm(child))
    return module


def _of_groups(optimizer: Optimizer) -> Optimizer:
    """An optimizer of the same groups, whose class can be constructed from them alone, as Horovod's wrapper does.

    Other arguments that its class requires, such as the learning rate, default to the optimizer's own.
    """
    kind = type(optimizer)
    required = [name for name, p in inspect.signature(kind).parameters.items() if p.default is p.empty]
    if given := {name: optimizer.defaults[name] for name in required if name in optimizer.defaults}:
        of_groups = type(kind.__name__, (kind,), {"__init__": partialmethod(kind.__init__, **given)})
        return of_groups(optimizer.param_groups)
    return optimizer
