"""What strategies share whose ranks hold a replica of the model each: torch's DistributedDataParallel around it.

Source: https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.process_group import ProcessGroup

_NAMES = inspect.signature(nn.parallel.DistributedDataParallel).parameters  # newer versions of torch have another one
NO_BROADCAST = {"forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False}


class Replicas(ProcessGroup):
    """Gradients are averaged in buckets while the backward pass goes on; the options are torch's own arguments.

    ``sync_batchnorm``: GPUs only.
    """

    def __init__(
        self,
        *,
        bucket_cap_mb: float,
        gradient_as_bucket_view: bool,
        static_graph: bool,
        find_unused_parameters: bool,
        broadcast_buffers: bool | str,
        sync_batchnorm: bool,
        **place: Any,
    ):
        super().__init__(**place)
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
            raise ConfigurationError.at(
                "parallel", self.name, ": the model has no trainable parameters. Use parallel=single."
            )
        ids = [self.local_rank] if self.device.type == "cuda" else None
        broadcasts = reads_buffers(model) if self.broadcast_buffers == "auto" else self.broadcast_buffers
        options = self.options if broadcasts else {**self.options, **NO_BROADCAST}
        return nn.parallel.DistributedDataParallel(model, device_ids=ids, **options)

    def prime(self, step: Callable[[], None]) -> None:
        # Buckets are rebuilt in the order of the first backward, when the second forward begins; another
        # bucket is another order of summation, so that a resumed run would differ from an undisturbed one.
        step()
        step()

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        return self._nothing if last else model.no_sync()  # type: ignore[operator]

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def reads_buffers(model: nn.Module) -> bool:
    """Whether a training pass may depend on a buffer; BatchNorm, which only writes its statistics then, does not."""
    modules = (each for each in model.modules() if not isinstance(each, _BatchNorm))
    return any(True for each in modules for _ in each.buffers(recurse=False))
