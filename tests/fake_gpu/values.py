"""What a GPU without values answers if values are asked for: zeros, and true except for any().

Masks select everything.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _scalar(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bool:
        return not getattr(tensor, "is_false", False)
    return 0j if tensor.is_complex() else 0.0 if tensor.is_floating_point() else 0


def _nonzero(tensor: Tensor) -> Tensor:
    return torch.zeros(tensor.numel(), tensor.ndim, dtype=torch.long, device=tensor.device)


def _masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    return torch.broadcast_tensors(tensor, mask)[0].reshape(-1)


def _bincount(tensor: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    dtype = torch.long if weights is None else weights.dtype
    return torch.zeros(max(1, minlength), dtype=dtype, device=tensor.device)


def _equal(tensor: Tensor, other: Tensor) -> bool:
    return tensor.shape == other.shape


def _unique(tensor: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.zeros(tensor.shape, dtype=torch.long, device=tensor.device)
    return tensor.reshape(-1), numbers, numbers.reshape(-1)


VALUES: dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": _scalar,
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "bincount": _bincount,
    "equal": _equal,
    "_unique2": _unique,
    "allclose": lambda *_, **__: True,
}


def without_masks(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Indices in which a mask is replaced by the numbers of all elements that it has."""
    plain: list[Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            plain.append(index)
        else:
            plain += [torch.zeros(index.numel(), dtype=torch.long, device=index.device) for _ in range(index.ndim)]
    return plain
