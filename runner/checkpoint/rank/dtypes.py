"""Dtypes of weights: their names in files, converting a model, and complex numbers as pairs of real ones."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}  # those of safetensors
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
    for named in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
        yield from [(name, tensor) for name, tensor in named if tensor.is_complex()]


def as_real(tensor: Tensor) -> Tensor:
    """A tensor of real numbers unchanged; a complex one as pairs of them, (..., 2), in the same memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
