"""Weights in half precision with fp32 copies, the masters, which the optimizer updates and a checkpoint holds.

Source: Micikevicius et al. 2018 (https://arxiv.org/abs/1710.03740); as level O2 of NVIDIA Apex did it
(https://nvidia.github.io/apex/amp.html), except that the masters keep what the initial weights lose by rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.lazy import real


class MasterWeights:
    """fp32 masters of one model's half-precision weights; none for a model that was not converted.

    BatchNorm stays in fp32: it accepts half-precision activations, and its statistics need the digits.
    """

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype
        self.masters: dict[Tensor, nn.Parameter] = {}  # by the model's own parameter
        self._updated: list[tuple[nn.Parameter, nn.Parameter]] = []  # parameters and masters of the optimizer

    def convert(self, model: nn.Module) -> nn.Module:
        """Convert weights and buffers to half precision, in place.

        Must come before any hook on gradients: a parameter that changes its dtype loses them.
        """
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                continue
            for parameter in module.parameters(recurse=False):
                if parameter.is_floating_point() and parameter not in self.masters:  # one may have two names
                    full = parameter.detach().to(torch.float32, copy=True)
                    self.masters[parameter] = nn.Parameter(full, requires_grad=parameter.requires_grad)
                    parameter.data = parameter.data.to(self.dtype)
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    setattr(module, name, buffer.to(self.dtype))
        return model

    def give_to(self, optimizer: Optimizer) -> None:
        """Replace the weights by their masters in the optimizer's parameter groups."""
        if not self.masters:
            return
        state = optimizer.state_dict()
        for weight, master in self.masters.items():
            master.data = torch.empty_like(weight.data, dtype=torch.float32).copy_(master.data)  # device, format
        for group in optimizer.param_groups:
            for index, weight in enumerate(group["params"]):
                if weight in self.masters:
                    group["params"][index] = self.masters[weight]
                    self._updated.append((weight, self.masters[weight]))
        if state["state"]:  # Adagrad's is there from the beginning
            optimizer.load_state_dict(state)

    def take_gradients(self) -> None:
        """Copy the weights' gradients to the masters, in fp32."""
        pairs = [(weight, master) for weight, master in self._updated if weight.grad is not None]
        for _, master in pairs:
            master.grad = torch.empty_like(master)
        copy([master.grad for _, master in pairs], [weight.grad for weight, _ in pairs])

    def zero_grad(self) -> None:
        for weight, _ in self._updated:
            weight.grad = None

    def round(self) -> None:
        """Set the weights to their masters, rounded."""
        copy([weight for weight, _ in self._updated], [master for _, master in self._updated])

    def state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's state in fp32 throughout, under its own names."""
        state = model.state_dict(keep_vars=True)
        for name, value in state.items():
            full = self.masters.get(value, value).detach()
            state[name] = full.float() if full.dtype is self.dtype else full
        return state

    def load_state_dict(self, model: nn.Module, state: dict[str, Tensor]) -> None:
        """Set the masters to the state that the weights were loaded from."""
        with torch.no_grad():
            for name, value in model.state_dict(keep_vars=True).items():
                if value in self.masters:
                    self.masters[value].copy_(real(state[name]))


@torch.no_grad()
def copy(targets: list[Any], sources: list[Any]) -> None:
    """Copy many tensors, by one kernel if the device has it."""
    if targets:
        torch._foreach_copy_(targets, sources)
