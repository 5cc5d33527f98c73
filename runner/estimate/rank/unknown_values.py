"""Handles values that fake tensors lack: the loop and the optimizer get placeholders, a model is stopped."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

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
            if any(frame_module(frame) in self._modules for frame in _frames(sys._getframe())):
                raise
            return 1.0 if args[0].is_floating_point() else 0


def frame_module(frame: FrameType) -> nn.Module | None:
    """The module whose forward pass a frame belongs to; None if it belongs to none."""
    owner = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
    return owner if isinstance(owner, nn.Module) else None


def where_it_stops(error: Exception, model: nn.Module) -> str:
    """The module of the model in which an error was raised, and why; empty if it was raised elsewhere."""
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}
    found = ""
    for trace in _traces(error.__traceback__):
        module = frame_module(trace.tb_frame)
        if module in names:
            found = f"{names[module]} ({type(module).__name__}), line {trace.tb_lineno} of {_file(trace)}"
    if not found:
        return ""
    reason = SAID.get(type(error).__name__) or " ".join(str(error).split())[:200] or type(error).__name__
    return f"{found}: {reason.rstrip('.')}"


def _file(trace: TracebackType) -> str:
    return trace.tb_frame.f_code.co_filename.rpartition("/")[2]


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@contextmanager
def silent(logger: str) -> Iterator[None]:
    """A context that suppresses a logger's messages."""
    own = logging.getLogger(logger)
    before, own.disabled = own.disabled, True
    try:
        yield
    finally:
        own.disabled = before
