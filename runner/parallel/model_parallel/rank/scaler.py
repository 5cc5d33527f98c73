"""The fp16 gradient scaler for ranks with different gradients: if one rank's overflow, all ranks skip the update."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class SharedScaler(torch.amp.GradScaler):
    """A GradScaler shared by all ranks. ``largest``: reduces a tensor to the maximum over all ranks, in place."""

    def __init__(self, device: str, largest: Callable[[Tensor], Tensor], **options: Any):
        super().__init__(device, **options)
        self._largest = largest

    def _unscale_grads_(
        self, optimizer: Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[torch.device, Tensor]:
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        largest = torch.stack([found_inf.clone(), *(each.to(found_inf.device) for each in found.values())]).amax(0)
        return {found_inf.device: self._largest(largest)}
