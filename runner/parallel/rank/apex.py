"""parallel=apex: NVIDIA Apex's DistributedDataParallel, as it was up to tag 25.05.

Source: https://nvidia.github.io/apex/parallel.html.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from apex.parallel import DistributedDataParallel, convert_syncbn_model
from torch import nn

from manyheads.runner.parallel.rank.process_group import ProcessGroup


class ApexDistributedDataParallel(ProcessGroup):
    """The options are DistributedDataParallel's own arguments. ``message_size``: the least elements of a bucket."""

    gradient_kinds = ()
    is_replica = True

    def __init__(
        self,
        *,
        message_size: int,
        delay_allreduce: bool,
        allreduce_always_fp32: bool,
        gradient_predivide_factor: float,
        sync_batchnorm: bool,
        **position: Any,
    ):
        super().__init__(**position)
        self.sync_batchnorm = sync_batchnorm
        self.options = {
            "message_size": message_size,
            "delay_allreduce": delay_allreduce,
            "allreduce_always_fp32": allreduce_always_fp32,
            "gradient_predivide_factor": gradient_predivide_factor,
        }

    def place(self, model: nn.Module) -> nn.Module:
        if self.sync_batchnorm:
            model = convert_syncbn_model(model)
        return super().place(model)

    def wrap_model(self, model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model, **self.options)

    def prime(self, step: Callable[[], None]) -> None:
        step()  # the first backward sums all gradients at once, and finds the buckets for those that follow

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        return self._nothing if last else keeping_gradients_here(model)

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, DistributedDataParallel) else model


@contextmanager
def keeping_gradients_here(model: DistributedDataParallel) -> Iterator[None]:
    """A context for a forward and backward pass whose gradients are only accumulated, like torch's no_sync."""
    model.disable_allreduce()
    try:
        yield
    finally:
        model.enable_allreduce()
