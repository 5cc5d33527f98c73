"""Dtypes of weights: how a model is converted to one, and how complex numbers are treated as pairs of real ones."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

REAL = {torch.float32: nn.Module.float, torch.float64: nn.Module.double}  # which leave complex tensors unchanged


def converted(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Convert a model in place: real numbers to ``dtype``, complex ones to those of the same precision.

    Integers and booleans are unchanged. ``dtype``: float32 or float64. (``Module.to`` would drop imaginary parts.)
    """
    model = REAL[dtype](model)
    for module in model.modules():
        for name, tensor in _complex(module):
            other = tensor.detach().to(dtype.to_complex()).resolve_conj()
            if isinstance(tensor, nn.Parameter):
                tensor.data = other
            elif other is not tensor:
                setattr(module, name, other)
    return model


def _complex(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The complex parameters and buffers that a module itself has, by name."""
    for own in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
        yield from [(name, tensor) for name, tensor in own if tensor.is_complex()]


def as_real(tensor: Tensor) -> Tensor:
    """A tensor of real numbers unchanged; a complex one as pairs of them, (..., 2), in the same memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
