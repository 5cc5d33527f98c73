"""SAM: gradients at the point nearby where the loss is highest, approximately, to find flat minima.

Source: Foret et al. 2020 (https://arxiv.org/abs/2010.01412), algorithm 1.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Sharpness:
    """SAM's settings. ``rho``: how far the whole model's weights move uphill; ``every``: only in every n-th update."""

    rho: float
    every: int = 1

    @contextmanager
    def uphill(self, parameters: Sequence[nn.Parameter], norm: Tensor) -> Iterator[None]:
        """A context in which the parameters are moved by ``rho`` along their gradients, whose norm is ``norm``, ()."""
        before = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad * (self.rho / (norm + 1e-12)).to(parameter.dtype))
        yield
        with torch.no_grad():
            torch._foreach_copy_([*parameters], before)
