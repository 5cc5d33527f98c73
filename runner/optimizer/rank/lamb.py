"""optimizer=lamb: Adam's step, scaled to the norm of the weight that it changes; for large batches.

Source: You et al. 2019 (https://arxiv.org/abs/1904.00962), algorithm 2, with unclipped norms.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from manyheads.runner.run.checkpoint_places import StateDict


class LAMB(Optimizer):
    """LAMB with weight decay included in the scaled step. If the weight or the step is zero, the step is Adam's."""

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._step(parameters, **{key: value for key, value in group.items() if key in self.defaults})
        return None if closure is None else closure()

    def _step(
        self, parameters: list[Tensor], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        states = [self._state(p) for p in parameters]
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        torch._foreach_lerp_(means, gradients, 1 - betas[0])
        torch._foreach_mul_(squares, betas[1])
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - betas[1])
        for state in states:
            state["step"] += 1
        counts = [float(state["step"]) for state in states]
        roots = torch._foreach_sqrt(torch._foreach_div(squares, [1 - betas[1] ** count for count in counts]))
        torch._foreach_add_(roots, eps)
        steps = torch._foreach_div(torch._foreach_div(means, [1 - betas[0] ** count for count in counts]), roots)
        torch._foreach_add_(steps, parameters, alpha=weight_decay)
        lengths = zip(torch._foreach_norm(parameters), torch._foreach_norm(steps), strict=True)
        trust = [torch.where((weight > 0) & (step > 0), weight / step, 1.0) for weight, step in lengths]
        torch._foreach_mul_(steps, trust)
        torch._foreach_add_(parameters, steps, alpha=-lr)

    def _state(self, parameter: Tensor) -> StateDict:
        state = self.state[parameter]
        if not state:
            state |= {"step": torch.tensor(0.0)}  # on the CPU, to avoid synchronization
            state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        return state
