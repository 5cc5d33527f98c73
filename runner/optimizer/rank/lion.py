"""optimizer=lion: steps of a fixed size, in the direction of the sign of a momentum.

Source: Chen et al. 2023 (https://arxiv.org/abs/2302.06675), algorithm 2.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class Lion(Optimizer):
    """Lion. ``betas``: for the direction of the step and for the stored momentum; weight decay is decoupled."""

    def __init__(
        self, params: Any, *, lr: float, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            (direction, kept), lr = group["betas"], group["lr"]
            gradients = [p.grad for p in parameters if p.grad is not None]
            momenta = [self._momentum(p) for p in parameters]
            steps = torch._foreach_lerp(momenta, gradients, 1 - direction)
            torch._foreach_sign_(steps)
            torch._foreach_mul_(parameters, 1 - lr * group["weight_decay"])
            torch._foreach_add_(parameters, steps, alpha=-lr)
            torch._foreach_lerp_(momenta, gradients, 1 - kept)
        return None if closure is None else closure()

    def _momentum(self, parameter: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        return state["momentum"]
