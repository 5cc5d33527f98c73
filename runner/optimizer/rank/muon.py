"""optimizer=muon: orthogonalized momentum for matrices and filters; AdamW or SGD for all other parameters.

Sources: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon); for steps as large as AdamW's, so that both can
use one learning rate and weight decay, Liu et al. 2025 (https://arxiv.org/abs/2502.16982); for weights of a fixed norm
and steps that are orthogonal matrices, https://github.com/KellerJordan/cifar10-airbench.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

CHOICES = {"method": ("muon", "adamw", "sgd"), "step_size": ("adamw", "orthogonal")}
QUINTIC = (3.4445, -4.7750, 2.0315)  # steep at 0; maps singular values into 0.7 to 1.2 in five steps


class Muon(AdamW):
    """Muon. ``method``: "muon"; or "adamw" or "sgd", for example for groups of embeddings and heads.

    With "muon", one-dimensional parameters get AdamW. ``momentum``: Nesterov momentum of Muon and SGD; ``ns_steps``:
    number of Newton-Schulz iterations; ``step_size``: "adamw" for the typical root mean square of AdamW's steps,
    "orthogonal" for singular values of 1; ``normalize``: scale a matrix of n rows to the norm sqrt(n) before its step.
    The iteration runs in bfloat16 on GPUs, elsewhere in the weights' own dtype. Raises ValueError for an unknown
    ``method`` or ``step_size``.
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
        step_size: str = "adamw",
        normalize: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        options = {"momentum": momentum, "ns_steps": ns_steps, "method": method}
        options |= {"step_size": step_size, "normalize": normalize}
        self.defaults |= options
        for group in self.param_groups:
            for key, value in options.items():
                group.setdefault(key, value)
            for key, allowed in CHOICES.items():
                if group[key] not in allowed:
                    raise ValueError(f"{key}={group[key]}; allowed are {', '.join(allowed)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        aside: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for parameter in group["params"]:
                step = self._own_step(parameter, group["method"])
                if step is not None and parameter.grad is not None:
                    step(parameter, parameter.grad, group)
                    aside.append((parameter, parameter.grad))
                    parameter.grad = None  # AdamW skips it
        loss = super().step(closure)
        for parameter, gradient in aside:
            parameter.grad = gradient
        return loss

    def _own_step(self, parameter: Tensor, method: str) -> Callable[..., None] | None:
        """The method that updates the parameter; None if AdamW does."""
        if method == "muon":
            return self._muon if parameter.ndim > 1 else None
        return self._sgd if method == "sgd" else None

    def _muon(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        buffer = self._momentum(parameter).lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(buffer, group["momentum"])
        step = orthogonal(direction.flatten(1), steps=group["ns_steps"]).view_as(parameter)
        if group["normalize"]:
            parameter.mul_(parameter.shape[0] ** 0.5 / parameter.norm().clamp(min=1e-7))
        scale = 1.0
        if group["step_size"] == "adamw":  # the typical root mean square of its steps
            scale = 0.2 * max(parameter.shape[0], parameter[0].numel()) ** 0.5
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-group["lr"] * scale)

    def _sgd(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
        buffer = self._momentum(parameter).mul_(group["momentum"]).add_(gradient)
        parameter.add_(gradient.add(buffer, alpha=group["momentum"]), alpha=-group["lr"])

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state |= {"step": torch.tensor(0.0), "momentum_buffer": torch.zeros_like(parameter)}  # AdamW counts too
        state["step"] += 1
        return state["momentum_buffer"]


def orthogonal(matrix: Tensor, *, steps: int) -> Tensor:
    """Approximately U V^T for a matrix U S V^T, (n, m), by ``steps`` Newton-Schulz iterations."""
    a, b, c = QUINTIC
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide.to(torch.bfloat16 if matrix.is_cuda else matrix.dtype)
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if matrix.shape[0] > matrix.shape[1] else x).to(matrix.dtype)
