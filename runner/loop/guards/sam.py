"""SAM: gradients at the point nearby where the loss is highest, approximately, to find flat minima.

Source: Foret et al. 2020 (https://arxiv.org/abs/2010.01412), algorithm 1.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.loop.update import Update


class SAM(Guard):
    """Replaces an update's gradients by those uphill. Weights and buffers are unchanged.

    ``rho``: how far the whole model's weights move uphill; ``every``: only in every n-th update.
    """

    def __init__(self, rho: float, every: int = 1):
        self._rho, self._every = rho, every

    def exchanged(self, update: Update, step: int, batches: list[Batch]) -> None:
        if (step - 1) % self._every:
            return
        buffers = [buffer.clone() for buffer in update.model.buffers()]
        norm = update.parallel.gradient_norm(update.parameters, limit=math.inf)
        with self._uphill(update.parameters, norm):
            update.precision.zero_grad(update.optimizer)
            update.compute_gradients(batches)
        update.restore_buffers(buffers)

    @contextmanager
    def _uphill(self, parameters: Sequence[nn.Parameter], norm: Tensor) -> Iterator[None]:
        """A context in which the parameters are moved by ``rho`` along their gradients, whose norm is ``norm``, ()."""
        before = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad * (self._rho / (norm + 1e-12)).to(parameter.dtype))
        yield
        with torch.no_grad():
            torch._foreach_copy_([*parameters], before)
