"""precision=amp: autocast, and for fp16 a gradient scaler.

Source: https://pytorch.org/docs/stable/notes/amp_examples.html.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d
from torch.optim import Optimizer

from runner.errors import ConfigurationError
from runner.parallel.base import Parallel
from runner.precision.base import Precision

AUTO = {"cuda": "float16", "cpu": "bfloat16"}


class AMP(Precision):
    """Weights stay in fp32; matrix products and convolutions run in ``dtype``: auto, float16, bfloat16.

    ``init_scale`` and ``growth_interval`` are the gradient scaler's, used with float16 only.
    """

    def __init__(self, parallel: Parallel, *, dtype: str, init_scale: float, growth_interval: int):
        super().__init__(parallel)
        name = AUTO[self.device_type] if dtype == "auto" else dtype
        self.autocast_dtype = getattr(torch, name)
        check_autocast(parallel.device, self.autocast_dtype)
        self.scaler = parallel.grad_scaler(
            enabled=self.autocast_dtype is torch.float16, init_scale=init_scale, growth_interval=growth_interval
        )
        self.skips_overflow = self.scaler.is_enabled()

    @property
    def summary(self) -> str:
        name = str(self.autocast_dtype).removeprefix("torch.")
        return f"{name} autocast" + (" with gradient scaler" if self.scaler.is_enabled() else "")

    def autocast(self) -> AbstractContextManager:
        return torch.autocast(self.device_type, self.autocast_dtype)

    @contextmanager
    def scaling(self, loss: Tensor, optimizer: Optimizer, *, last: bool) -> Iterator[Tensor]:
        yield self.scaler.scale(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        self.scaler.step(optimizer)  # leaves the update out when a gradient is not finite
        self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scaler.load_state_dict(state)


def check_autocast(device: torch.device, dtype: torch.dtype) -> None:
    """Raises ConfigurationError where the device can't train a convolution in ``dtype``."""
    name = str(dtype).removeprefix("torch.")
    try:
        kernel = torch.zeros(1, 1, 3, 3, device=device, requires_grad=True)  # nothing drawn: the weights come later
        with torch.autocast(device.type, dtype):
            output = conv2d(torch.zeros(1, 1, 4, 4, device=device), kernel)
        output.float().sum().backward()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"precision.dtype={name}: this {device.type} device can't train in it ({reason}). Use precision=fp32."
        ) from None
