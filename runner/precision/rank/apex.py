"""precision=apex: NVIDIA Apex's automatic mixed precision, as it was up to tag 25.05.

Source: https://nvidia.github.io/apex/amp.html, and advanced.html there for clipping and accumulation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from apex import amp
from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.precision.rank.precision import PrecisionPolicy
from manyheads.runner.run.checkpoint_places import StateDict


class Apex(PrecisionPolicy):
    """``opt_level``: O0 to O3, which decides the other options that are None. ``loss_scale``: "dynamic" or a number."""

    def __init__(
        self,
        parallel: Parallel,
        *,
        opt_level: str,
        loss_scale: float | str | None,
        keep_batchnorm_fp32: bool | None,
        master_weights: bool | None,
    ):
        super().__init__(parallel)
        self.gradient_kinds = ("complex", "sparse") if opt_level == "O0" else ()
        self.level, self.products = opt_level, "fp32" if opt_level == "O0" else "half"
        self.options = {
            "loss_scale": loss_scale,
            "keep_batchnorm_fp32": keep_batchnorm_fp32,
            "master_weights": master_weights,
        }
        default = "dynamic" if opt_level in ("O1", "O2") else 1.0
        self.scale = default if loss_scale is None else loss_scale
        self.skips_overflow = self.scale == "dynamic"
        self._patches: list[Any] = []  # of torch's functions, in the whole process
        self.masters: dict[nn.Parameter, nn.Parameter] = {}  # by the model's own parameter, where they differ

    @property
    def summary(self) -> str:
        return f"Apex's {self.level}, {'dynamic loss scale' if self.skips_overflow else f'loss scale {self.scale}'}"

    def prepare(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        owned = self.parameters(optimizer)
        model, optimizer = amp.initialize(model, optimizer, opt_level=self.level, verbosity=0, **self.options)
        if self.level == "O1":
            self._patches.append(amp._amp_state.handle)
        # Lets Amp create master weights now: in the first backward pass it would lose the gradients of micro-batches
        # before the last one, and clipping would already have its parameters.
        optimizer.zero_grad()
        pairs = zip(owned, self.parameters(optimizer), strict=True)
        self.masters = {weight: master for weight, master in pairs if weight is not master}
        self.weights_of_model = list(model.parameters())
        return model, optimizer

    @contextmanager
    def scaling(self, loss: Tensor, optimizer: Optimizer, *, last: bool) -> Iterator[Tensor]:
        # Unscaling moves the gradients of earlier micro-batches to where the exchange between ranks misses them.
        with amp.scale_loss(loss, optimizer, delay_unscale=not last) as scaled:
            yield scaled

    def parameters(self, optimizer: Optimizer) -> list[nn.Parameter]:
        return list(amp.master_params(optimizer))

    def zero_grad(self, optimizer: Optimizer) -> None:
        for parameter in self.weights_of_model:  # Amp would detach them in place, which views of DDP's buckets forbid
            parameter.grad = None
        super().zero_grad(optimizer)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        state = model.state_dict()  # patched by Amp to return fp32
        state.update((name, self.masters[p].detach()) for name, p in _named(model) if p in self.masters)
        return state

    def weights_loaded(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in _named(model):
                if parameter in self.masters:
                    self.masters[parameter].copy_(weights[name])

    def state_dict(self) -> StateDict:
        return dict(amp.state_dict())

    def load_state_dict(self, state: StateDict) -> None:
        amp.load_state_dict(state)

    def close(self) -> None:
        for handle in self._patches:
            handle._deactivate()


def _named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(model.named_parameters(remove_duplicate=False))
