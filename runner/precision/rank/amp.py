"""precision=amp: autocast, or weights in half precision, and for fp16 a gradient scaler.

Source: https://pytorch.org/docs/stable/notes/amp_examples.html.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.optim import Optimizer

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.precision.amp import AUTO
from manyheads.runner.precision.rank.master_weights import MasterWeights
from manyheads.runner.precision.rank.precision import PrecisionPolicy, begin_momentum
from manyheads.runner.run.checkpoint_places import StateDict


class AMP(PrecisionPolicy):
    """Matrix products and convolutions run in ``dtype``: auto, float16, bfloat16.

    ``level`` O1: weights stay in fp32. O2: they are in ``dtype`` too, all but BatchNorm's, and have fp32 masters;
    autocast converts images to it, and the loss back to fp32. ``init_scale`` and ``growth_interval`` are the
    gradient scaler's, used with float16 only.
    """

    products = "half"

    def __init__(self, parallel: Parallel, *, level: str, dtype: str, init_scale: float, growth_interval: int):
        super().__init__(parallel)
        self.level = level
        self.half: torch.dtype = getattr(torch, AUTO[self.device_type] if dtype == "auto" else dtype)
        check_autocast(parallel.device, self.half)
        self.master_weights = MasterWeights(self.half)
        self.scaler = parallel.grad_scaler(
            enabled=self.half is torch.float16, init_scale=init_scale, growth_interval=growth_interval
        )
        self.skips_overflow = self.scaler.is_enabled()
        self.gradient_kinds = (
            *(() if self.scaler.is_enabled() else ("complex",)),
            *(("sparse",) if level == "O1" else ()),
        )

    @property
    def summary(self) -> str:
        how = {"O1": " autocast", "O2": " weights, fp32 master copies,"}[self.level]
        text = str(self.half).removeprefix("torch.") + how
        return f"{text} with gradient scaler" if self.scaler.is_enabled() else text.rstrip(",")

    def convert(self, model: nn.Module) -> nn.Module:
        return self.master_weights.convert(model) if self.level == "O2" else super().convert(model)

    def prepare(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        self.master_weights.give_to(optimizer)
        if self.scaler.is_enabled():
            begin_momentum(optimizer)
        return model, optimizer

    def autocast(self) -> AbstractContextManager:
        return torch.autocast(self.device_type, self.half)

    @contextmanager
    def scaling(self, loss: Tensor, optimizer: Optimizer, *, last: bool) -> Iterator[Tensor]:
        yield self.scaler.scale(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        self.master_weights.take_gradients()
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        self.scaler.step(optimizer)  # skips the update if a gradient is not finite
        self.scaler.update()
        self.master_weights.round()

    def skip(self, optimizer: Optimizer) -> None:
        self.scaler.update()  # which expects it after unscale_

    def zero_grad(self, optimizer: Optimizer) -> None:
        super().zero_grad(optimizer)
        self.master_weights.zero_grad()

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return self.master_weights.state_dict(model)

    def full(self, parameter: nn.Parameter) -> nn.Parameter:
        return self.master_weights.masters.get(parameter, parameter)

    def weights_loaded(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        self.master_weights.load_state_dict(model, weights)

    def state_dict(self) -> StateDict:
        return self.scaler.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.scaler.load_state_dict(state)


def check_autocast(device: torch.device, dtype: torch.dtype) -> None:
    """Raises ConfigurationError if the device can't train a convolution in ``dtype``."""
    name = str(dtype).removeprefix("torch.")
    try:
        kernel = torch.zeros(1, 1, 3, 3, device=device, requires_grad=True)  # draws no random numbers
        with torch.autocast(device.type, dtype):
            output = conv2d(torch.zeros(1, 1, 4, 4, device=device), kernel)
        output.float().sum().backward()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError.at(
            "precision.dtype", name, f": this {device.type} device can't train with it ({reason}). Use precision=fp32."
        ) from None
