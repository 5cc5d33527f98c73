"""parallel=ddp: a rank for each device, gradients averaged in buckets during the backward pass."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from manyheads.runner.parallel.rank.process_group import Replicas
from manyheads.runner.run.checkpoint_places import StateDict

HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
KEPT = ("error_dict", "p_memory_dict", "q_memory_dict")


class DistributedDataParallel(Replicas):
    """torch's DistributedDataParallel. ``compression``: gradients are sent as "fp16" or "bf16", "none", or "powersgd".

    PowerSGD (Vogels et al. 2019, https://arxiv.org/abs/1905.13727) sends matrices of rank ``powersgd_rank`` instead,
    from update ``powersgd_start`` on; the error of this approximation is added to the rank's next gradients.
    """

    def __init__(self, *, compression: str, powersgd_rank: int = 1, powersgd_start: int = 1000, **options: Any):
        super().__init__(**options)
        self.compression = compression
        self.gradient_kinds = ("complex", "sparse") if compression == "none" else ()
        self.powersgd: powerSGD_hook.PowerSGDState | None = None
        if compression == "powersgd":
            self.powersgd = powerSGD_hook.PowerSGDState(
                process_group=None,
                matrix_approximation_rank=powersgd_rank,
                start_powerSGD_iter=powersgd_start,
            )

    def wrap_model(self, model: nn.Module) -> nn.Module:
        wrapped = super().wrap_model(model)
        if self.powersgd is not None:
            wrapped.register_comm_hook(self.powersgd, powerSGD_hook.powerSGD_hook)  # type: ignore[operator]
        elif self.compression != "none":
            wrapped.register_comm_hook(None, HOOKS[self.compression])  # type: ignore[operator]
        return wrapped

    def prime(self, step: Callable[[], None]) -> None:
        super().prime(step)
        if self.powersgd is not None:
            self.powersgd.iter = 0  # priming is no update: nothing has been compressed yet

    def own_state(self) -> StateDict | None:
        """The state of this rank's compression: errors that it carries over, and its hook's random numbers."""
        if self.powersgd is None:
            return None
        generator = self.powersgd.rng.get_state(legacy=False)
        numbers = {"key": generator["state"]["key"].tolist(), "pos": int(generator["state"]["pos"])}
        tensors = {name: {k: t.cpu() for k, t in getattr(self.powersgd, name).items()} for name in KEPT}
        return {"powersgd": {**tensors, "iter": self.powersgd.iter, "random": numbers}}

    def load_own_state(self, state: StateDict) -> None:
        if self.powersgd is None or "powersgd" not in state:
            return
        saved = state["powersgd"]
        for name in KEPT:
            setattr(self.powersgd, name, {k: tensor.to(self.device) for k, tensor in saved[name].items()})
        self.powersgd.iter = saved["iter"]
        generator = self.powersgd.rng.get_state(legacy=False)
        generator["state"] |= {"key": np.array(saved["random"]["key"], dtype=np.uint32), "pos": saved["random"]["pos"]}
        self.powersgd.rng.set_state(generator)
