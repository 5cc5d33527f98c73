"""SAM: gradients from near where the loss nearby is highest, to find flat minima.

Source: Foret et al. 2020 (https://arxiv.org/abs/2010.01412), algorithm 1.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch
    from manyheads.runner.loop.update import Update


@dataclass(frozen=True)
class Sharpness:
    """``rho``: how far the whole model's weights move uphill for the second pass; ``every``: in which updates."""

    rho: float
    every: int = 1

    def look_uphill(self, update: "Update", batches: "list[Batch]") -> None:
        """Replace the gradients of these micro-batches by those from uphill; weights and buffers are unchanged."""
        parameters, buffers = update.parameters, [buffer.clone() for buffer in update.model.buffers()]
        before = [parameter.detach().clone() for parameter in parameters]
        norm = update.parallel.gradient_norm(parameters, limit=math.inf)
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad * (self.rho / (norm + 1e-12)).to(parameter.dtype))
        update.precision.zero_grad(update.optimizer)
        update.compute_gradients(batches)
        with torch.no_grad():
            torch._foreach_copy_([*parameters], before)
        update.restore_buffers(buffers)
