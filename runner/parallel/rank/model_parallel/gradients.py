"""Reduces the gradients that are still partial after the backward passes, and computes their norm over all ranks."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.parallel.rank.model_parallel.own_parts import OwnParts
from manyheads.runner.parallel.rank.model_parallel.tensors import add_up, average, shared_norm

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


class Gradients:
    """The gradients of ranks that share a model.

    ``parts``: the optimizer's parameters; ``whose``: the name of each weight of the model.
    """

    def __init__(self, parts: OwnParts, whose: Mapping[nn.Parameter, str], ranks: "ModelParallel"):
        self._parts, self._ranks = parts, ranks
        self._names = {part: whose[weight] for weight, part in parts.parameters}
        self._plain = {part: None for weight, part in parts.parameters if weight is part}
        self._partial = [part for part, name in self._names.items() if name in ranks.shared.partial]

    def exchange(self) -> None:
        """Reduce gradients, so that all ranks with the same part of a weight have the same gradient for it."""
        ranks = self._ranks
        self._parts.take_gradients()
        if ranks.pipe is not None:
            ranks.pipe.add_up_shared(self._names)
        if self._partial:
            add_up(self._partial, ranks.tensor_group)
        if ranks.data_group is not None and self._plain:
            average(self._plain, ranks.data_group)

    def norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        """The norm of all gradients, (), clipped in place to ``limit``; see ``Parallel.gradient_norm``."""
        parts = [(p.grad, self._holders(p)) for p in parameters if p.grad is not None and p.grad.numel()]
        norm = shared_norm(parts, self._ranks.reduce, self._ranks.device)
        if math.isfinite(limit):
            factor = torch.clamp(limit / (norm + 1e-6), max=1.0)  # as in clip_grad_norm_
            for gradient, _ in parts:
                gradient.mul_(factor.to(gradient.dtype))
        return norm

    def _holders(self, parameter: nn.Parameter) -> int:
        """Number of ranks that hold the same part of this parameter."""
        name, ranks = self._names[parameter], self._ranks
        copies = 1 if name in ranks.shared.cuts else ranks.layout.tensor
        copies *= 1 if ranks.pipe is None else len(ranks.pipe.ranks_with(name))
        return copies * (ranks.data_size if parameter in self._plain else self._parts.copies(parameter))


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
