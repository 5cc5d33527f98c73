"""optimizer=muon: a momentum made orthogonal, for matrices and filters; AdamW for all else.

Sources: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon); for steps as long as AdamW's, so that one
learning rate and weight decay do for both, Liu et al. 2025 (https://arxiv.org/abs/2502.16982).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

QUINTIC = (3.4445, -4.7750, 2.0315)  # steep at 0; brings singular values to between 0.7 and 1.2 in five steps


class Muon(AdamW):
    """``method``: "muon", or "adamw" for groups of embeddings and heads, say; what has one dimension always gets AdamW.

    ``momentum``: of the matrices, after Nesterov; ``ns_steps``: of the Newton-Schulz iteration. On GPUs it computes in
    bfloat16, else as the weights.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        momentum: float = 0.95,
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        method: str = "muon",
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        own = {"momentum": momentum, "ns_steps": ns_steps, "method": method}
        self.defaults |= own
        for group in self.param_groups:
            for key, value in own.items():
                group.setdefault(key, value)
            if group["method"] not in ("muon", "adamw"):
                raise ValueError(f"method={group['method']}; allowed are muon and adamw")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        aside: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if group["method"] == "muon" and parameter.ndim > 1 and parameter.grad is not None:
                    self._step(parameter, parameter.grad, group)
                    aside.append((parameter, parameter.grad))
                    parameter.grad = None  # AdamW passes over it
        found = super().step(closure)
        for parameter, gradient in aside:
            parameter.grad = gradient
        return found

    def _step(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state |= {"step": torch.tensor(0.0), "momentum_buffer": torch.zeros_like(parameter)}  # AdamW counts too
        state["step"] += 1
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(buffer, group["momentum"])
        step = orthogonal(direction.flatten(1), steps=group["ns_steps"]).view_as(parameter)
        scale = 0.2 * max(parameter.shape[0], parameter[0].numel()) ** 0.5  # AdamW's usual root mean square
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-group["lr"] * scale)


def orthogonal(matrix: Tensor, *, steps: int) -> Tensor:
    """About U V^T of a matrix U S V^T, (n, m), by a Newton-Schulz iteration."""
    a, b, c = QUINTIC
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide.to(torch.bfloat16 if matrix.is_cuda else matrix.dtype)
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if matrix.shape[0] > matrix.shape[1] else x).to(matrix.dtype)
