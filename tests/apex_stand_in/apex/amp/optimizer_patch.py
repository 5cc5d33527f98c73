"""What amp.initialize does to an optimizer: master weights, gradients unscaled, steps that may be skipped."""

import torch
from torch import nn


class Stash:
    """``masters``: by fp16 parameter. Made at first use, which drops the gradients that are there."""

    def __init__(self, optimizer, *, master_weights: bool):
        self.optimizer, self.master_weights = optimizer, master_weights
        self.masters: dict[nn.Parameter, nn.Parameter] = {}
        self.has_scaled_gradients = self.skips_next_step = self.is_ready = False
        self._aside: list[tuple[nn.Parameter, torch.Tensor | None]] = []

    def get_ready(self) -> None:
        if self.is_ready or not self.master_weights:
            return
        self.is_ready = True
        for group in self.optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                parameter.grad = parameter.grad if parameter.dtype is torch.float16 else None
                if parameter.dtype is torch.float16:
                    group["params"][index] = self.masters[parameter] = nn.Parameter(parameter.detach().float())
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def own(self) -> list[nn.Parameter]:
        """The optimizer's parameters that are the model's as well."""
        masters = {id(master) for master in self.masters.values()}
        return [p for group in self.optimizer.param_groups for p in group["params"] if id(p) not in masters]

    def set_gradients_aside(self) -> None:
        self.get_ready()
        self._aside = [(parameter, parameter.grad) for parameter in self.own()]
        for parameter in [*self.own(), *self.masters]:
            parameter.grad = None

    def unscale(self, scale: float) -> bool:
        """Gradients of the optimizer's parameters at their true size; returns whether one is not finite."""
        self.get_ready()
        for parameter in self.own():
            if parameter.grad is not None:
                parameter.grad.mul_(1 / scale)
        for weight, master in self.masters.items():
            if weight.grad is not None:
                gradient = weight.grad.float() / scale
                master.grad = gradient if master.grad is None else master.grad + gradient
        for parameter, earlier in self._aside:
            if earlier is not None:
                parameter.grad = earlier if parameter.grad is None else parameter.grad.add_(earlier)
        self._aside = []
        gradients = [p.grad for p in [*self.own(), *self.masters.values()] if p.grad is not None]
        return not all(bool(gradient.isfinite().all()) for gradient in gradients)


def patch(optimizer, *, master_weights: bool) -> None:
    """Instance attributes in the place of its methods, as Amp does it."""
    stash = optimizer._amp_stash = Stash(optimizer, master_weights=master_weights)
    step, zero_grad = optimizer.step, optimizer.zero_grad

    def patched_step():
        if stash.has_scaled_gradients:
            raise RuntimeError("optimizer.step() cannot be called after delay_unscale=True.")
        skips, stash.skips_next_step = stash.skips_next_step, False
        if not skips:
            step()
            with torch.no_grad():
                for weight, master in stash.masters.items():
                    weight.copy_(master)
        for master in stash.masters.values():
            master.grad = None

    def patched_zero_grad():
        stash.get_ready()
        for parameter in [*stash.own(), *stash.masters]:
            if parameter.grad is not None:
                parameter.grad.detach_()
                parameter.grad.zero_()
        for master in stash.masters.values():
            master.grad = None

    optimizer.step = patched_step
    optimizer.zero_grad = patched_zero_grad if master_weights else zero_grad
