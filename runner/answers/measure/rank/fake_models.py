"""Models whose parameters take no memory, and the values that such fake tensors lack.

Parameters are on the meta device first, then fake CPU tensors. The loop and the optimizer get placeholders for values;
a model that needs one is stopped.
"""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._python_dispatch import TorchDispatchMode


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
    fakes: dict[int, Tensor] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    if id(tensor) not in fakes:
                        fakes[id(tensor)] = _fake(tensor, mode)
                    tensors[name] = fakes[id(tensor)]  # type: ignore[assignment]


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    if not isinstance(tensor, nn.Parameter):
        return mode.from_tensor(tensor)
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return nn.Parameter(empty, requires_grad=tensor.requires_grad)


def plain_conversion() -> AbstractContextManager[None]:
    """Makes ``Module.to`` keep tensors that it does not change; torch's own replaces fake ones that are in use."""

    def apply(self: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(change)
        for tensors in (self._parameters, self._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    with torch.no_grad():
                        new: Any = change(tensor)
                    if new is not tensor:
                        is_parameter = isinstance(tensor, nn.Parameter)
                        tensors[name] = nn.Parameter(new, tensor.requires_grad) if is_parameter else new
        return self

    return replaced(nn.Module, "_apply", apply)


SAID = {
    "DataDependentOutputException": "what it does depends on the values in its tensors, which an estimate does not "
    "have",
    "DynamicOutputShapeException": "the shape of a tensor depends on the values in another one, which an estimate "
    "does not have",
}


class UnknownValues(TorchDispatchMode):
    """Gives the loop and the optimizer a placeholder for any value they ask for; stops a module of ``model``."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self._modules = set(model.modules())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        if func is not torch.ops.aten._local_scalar_dense.default:
            return func(*args, **(kwargs or {}))
        try:
            return func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if any(frame_module(frame) in self._modules for frame, _ in traceback.walk_stack(sys._getframe())):
                raise
            return 1.0 if args[0].is_floating_point() else 0


def frame_module(frame: FrameType) -> nn.Module | None:
    """The module whose forward pass a frame belongs to; None if it belongs to none."""
    owner = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
    return owner if isinstance(owner, nn.Module) else None


def where_it_stops(error: Exception, model: nn.Module) -> str:
    """The module of the model in which an error was raised, and why; empty if it was raised elsewhere."""
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}
    module_line = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame_module(frame)
        if module in names:
            file = Path(frame.f_code.co_filename).name
            module_line = f"{names[module]} ({type(module).__name__}), line {line} of {file}"
    if not module_line:
        return ""
    reason = SAID.get(type(error).__name__) or " ".join(str(error).split())[:200] or type(error).__name__
    return f"{module_line}: {reason.rstrip('.')}"


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A context in which an attribute has another value."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
