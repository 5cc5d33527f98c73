"""Builds models whose parameters take no memory: on the meta device first, then as fake CPU tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_parameter_registration_hook


@contextmanager
def hollow_parameters() -> Iterator[None]:
    """A context in which new modules free each parameter's memory as soon as it is registered.

    Everything else is really computed, so a constructor may use the values in its own tensors.
    """

    def empty(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.is_meta:
            return parameter
        return nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)

    handle = register_module_parameter_registration_hook(empty)  # type: ignore[arg-type]
    try:
        yield
    finally:
        handle.remove()


def make_fake(model: nn.Module, mode: FakeTensorMode) -> None:
    """Replace all parameters and buffers by fake CPU tensors of ``mode``, which has to be active."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for own in (module._parameters, module._buffers):
            for name, tensor in own.items():
                if tensor is not None:
                    if id(tensor) not in made:
                        made[id(tensor)] = _fake(tensor, mode)
                    own[name] = made[id(tensor)]  # type: ignore[assignment]


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    if not isinstance(tensor, nn.Parameter):
        return mode.from_tensor(tensor)
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return nn.Parameter(empty, requires_grad=tensor.requires_grad)


@contextmanager
def plain_conversion() -> Iterator[None]:
    """Makes ``Module.to`` keep tensors that it does not change; torch's own replaces fake ones that are in use."""
    before = nn.Module._apply

    def apply(self: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(change)
        for own in (self._parameters, self._buffers):
            for name, tensor in own.items():
                if tensor is not None:
                    with torch.no_grad():
                        new: Any = change(tensor)
                    if new is not tensor:
                        is_parameter = isinstance(tensor, nn.Parameter)
                        own[name] = nn.Parameter(new, tensor.requires_grad) if is_parameter else new
        return self

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = before  # type: ignore[method-assign]
