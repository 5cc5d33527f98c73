"""parallel=dp: one process, a replica of the model on every GPU.

Source: https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html. Outputs are gathered on the first
device and the loss is computed there, so that it is the mean over the whole batch.
"""

from typing import Any

import torch
from torch import nn

from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import call


class DataParallel(Parallel):
    """nn.DataParallel; ``device_ids`` and ``output_device`` are its own arguments, null for all and the first."""

    def __init__(self, *, device_ids: list[int] | None, output_device: int | None, **position: Any):
        super().__init__(**position)
        count = torch.cuda.device_count() if self.device.type == "cuda" else 0
        self.device_ids = device_ids or list(range(count))
        self.output_device = output_device
        if self.device_ids:
            self.devices = [torch.device("cuda", index) for index in self.device_ids]
            self.device = self.devices[0]

    @property
    def summary(self) -> str:
        replicas = len(self.device_ids)
        return f"{replicas} replicas" if replicas > 1 else "one replica, the same as parallel=single"

    def wrap_model(self, model: nn.Module) -> nn.Module:
        if self.device.type == "cpu" and torch.cuda.is_available():
            return model  # nn.DataParallel would move it to the GPUs; where there are none, it calls the module itself
        return nn.DataParallel(model, device_ids=self.device_ids or None, output_device=self.output_device)

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, nn.DataParallel) else model

    def evaluate(self, model: nn.Module, inputs: Any) -> Any:
        return call(model, inputs)
