"""apex.optimizers: the fused ones, by plain arithmetic."""

import importlib.util

import torch
from torch.optim import Optimizer


class _Fused(Optimizer):
    """``update``: what differs, for one parameter."""

    def __init__(self, params, defaults):
        super().__init__(params, defaults)
        if importlib.util.find_spec("amp_C") is None:
            raise RuntimeError(f"apex.optimizers.{type(self).__name__} requires cuda extensions")
        for group in self.param_groups:
            if any(p.dtype not in (torch.float16, torch.float32) for p in group["params"]):
                raise RuntimeError(f"{type(self).__name__} only support fp16 and fp32.")

    def zero_grad(self):
        super().zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            self.begin(group)
            for index, parameter in enumerate(group["params"]):
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, self.state[parameter], group, index)

    def begin(self, group) -> None: ...


class FusedSGD(_Fused):
    def __init__(
        self, params, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, wd_after_momentum=False
    ):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay})
        self.nesterov, self.decays_late = nesterov, wd_after_momentum

    def update(self, parameter, gradient, state, group, index):
        decay = group["weight_decay"] * parameter
        gradient = gradient if self.decays_late else gradient + decay
        first = "momentum_buffer" not in state
        velocity = state.setdefault("momentum_buffer", gradient.clone())
        if not first:
            velocity.mul_(group["momentum"]).add_(gradient, alpha=1 - group["dampening"])
        change = gradient + group["momentum"] * velocity if self.nesterov else velocity
        parameter.sub_(group["lr"] * (change + decay if self.decays_late else change))


def moments(gradient, state, group, *, averages=True):
    """First and second moment without bias, where that is asked for."""
    (beta1, beta2), step = group["betas"], group["step"]
    first = state.setdefault("exp_avg", torch.zeros_like(gradient))
    second = state.setdefault("exp_avg_sq", torch.zeros_like(gradient))
    first.mul_(beta1).add_(gradient, alpha=1 - beta1 if averages else 1.0)
    second.mul_(beta2).add_(gradient**2, alpha=1 - beta2)
    if not group["bias_correction"]:
        return first, second
    return first / (1 - beta1**step), second / (1 - beta2**step)


class FusedAdam(_Fused):
    def __init__(
        self,
        params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        adam_w_mode=True,
        weight_decay=0.0,
    ):
        defaults = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps}
        super().__init__(params, defaults | {"weight_decay": weight_decay})
        self.adam_w_mode = adam_w_mode

    def change(self, parameter, gradient, state, group, **how):
        decay = group["weight_decay"] * parameter
        first, second = moments(gradient if self.adam_w_mode else gradient + decay, state, group, **how)
        change = first / (second.sqrt() + group["eps"])
        return change + decay if self.adam_w_mode else change

    def update(self, parameter, gradient, state, group, index):
        parameter.sub_(group["lr"] * self.change(parameter, gradient, state, group))


class FusedLAMB(FusedAdam):
    def __init__(
        self,
        params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.01,
        adam_w_mode=True,
        grad_averaging=True,
        max_grad_norm=1.0,
        use_nvlamb=False,
    ):
        super().__init__(params, lr, bias_correction, betas, eps, adam_w_mode, weight_decay)
        self.averages, self.max_grad_norm, self.use_nvlamb = grad_averaging, max_grad_norm, use_nvlamb

    def begin(self, group) -> None:
        gradients = [p.grad for p in group["params"] if p.grad is not None]
        self.clipped = max(1.0, float(torch.nn.utils.get_total_norm(gradients)) / self.max_grad_norm)

    def update(self, parameter, gradient, state, group, index):
        change = self.change(parameter, gradient / self.clipped, state, group, averages=self.averages)
        adapts = (self.use_nvlamb or group["weight_decay"] != 0) and bool(parameter.any()) and bool(change.any())
        parameter.sub_(group["lr"] * change * (parameter.norm() / change.norm() if adapts else 1.0))


class FusedNovoGrad(_Fused):
    def __init__(
        self,
        params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.0,
        reg_inside_moment=False,
        grad_averaging=True,
        norm_type=2,
        init_zero=False,
    ):
        defaults = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps}
        super().__init__(params, defaults | {"weight_decay": weight_decay})
        self.inside, self.averages, self.zero = reg_inside_moment, grad_averaging, init_zero
        self.order = 2.0 if norm_type == 2 else float("inf")

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["exp_avg_sq"]  # a KeyError before the first step, as Apex has it

    def begin(self, group) -> None:
        norms = torch.stack([p.grad.float().norm(self.order) for p in group["params"]])
        before = group.get("exp_avg_sq", torch.zeros_like(norms) if self.zero else norms)
        beta = group["betas"][1]
        squared = (beta * before**2 + (1 - beta) * norms**2).sqrt()
        group["exp_avg_sq"] = squared if self.order == 2 else beta * before + (1 - beta) * norms

    def update(self, parameter, gradient, state, group, index):
        (beta1, beta2), step = group["betas"], group["step"]
        corrections = (1 - beta1**step, (1 - beta2**step) ** 0.5) if group["bias_correction"] else (1, 1)
        norm = group["exp_avg_sq"][index] / corrections[1] + group["eps"]
        decay = group["weight_decay"] * parameter
        first = state.setdefault("exp_avg", torch.zeros_like(parameter))
        taken = 1 - beta1 if self.averages else 1.0
        first.mul_(beta1).add_(gradient / norm + decay if self.inside else gradient, alpha=taken)
        change = first / corrections[0]
        parameter.sub_(group["lr"] * (change if self.inside else change / norm + decay))
