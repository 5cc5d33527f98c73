"""Plain single precision: every hook that a precision may override, doing nothing."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.parallel.rank.parallel import GradientKind, Parallel
from manyheads.runner.run.checkpoint_places import StateDict


class PrecisionPolicy:
    """The number formats of a step. ``dtype``: of the weights, and of images when they enter the model."""

    dtype = torch.float32
    products = "fp32"  # what most of the work is computed in: fp32, tf32, fp64, or half, which is fp16 or bf16
    tf32 = False
    gradient_kinds: tuple[GradientKind, ...] = ("complex", "sparse")  # which unusual ones it can compute with
    skips_overflow = False  # whether step() itself skips updates that are not finite

    def __init__(self, parallel: Parallel):
        self.parallel = parallel
        self.device_type = parallel.device.type
        # Also without a GPU: these are settings of the process, which a sweep's jobs may share.
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = self.tf32
        self._nothing = nullcontext()

    @property
    def summary(self) -> str:
        """The description of this precision in the run's header."""
        return str(self.dtype).removeprefix("torch.")

    def convert(self, model: nn.Module) -> nn.Module:
        """Convert the weights to the dtypes in which they are trained, on the CPU, before anything refers to them."""
        return converted(model, self.dtype)

    def prepare(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Change model and optimizer after the strategy's place and wrap_optimizer, before its wrap_model."""
        return model, optimizer

    def autocast(self) -> AbstractContextManager:
        """Context for the forward pass and the loss."""
        return self._nothing

    def scaling(self, loss: Tensor, optimizer: Optimizer, *, last: bool) -> AbstractContextManager[Tensor]:
        """Context for the backward pass and the exchange of gradients; yields the loss to differentiate.

        ``last``: an update follows.
        """
        return nullcontext(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        """Remove the scale from the gradients, before clipping."""

    def parameters(self, optimizer: Optimizer) -> list[nn.Parameter]:
        """The parameters that the optimizer owns, whose gradients are clipped."""
        return [p for group in optimizer.param_groups for p in group["params"]]

    def step(self, optimizer: Optimizer) -> None:
        """Change the weights, once the gradients are exchanged, unscaled and clipped."""
        optimizer.step()

    def skip(self, optimizer: Optimizer) -> None:
        """Called instead of ``step`` for an update that is skipped although its gradients are finite."""

    def zero_grad(self, optimizer: Optimizer) -> None:
        """Clear the gradients of the last update."""
        if getattr(optimizer.zero_grad, "__func__", None) is not Optimizer.zero_grad:  # a library's own
            optimizer.zero_grad()
            return
        for group in optimizer.param_groups:  # as torch's own does it, without the 8 µs of its profiler
            for parameter in group["params"]:
                parameter.grad = None

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """The state of the user's own model as checkpoints store it, from which any precision can resume."""
        return model.state_dict()

    def full(self, parameter: nn.Parameter) -> nn.Parameter:
        """The tensor in full precision of which ``parameter`` is a rounded copy; itself if it is not one."""
        return parameter

    def weights_loaded(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        """Update internal copies after the user's own model was loaded from ``weights``."""

    def state_dict(self) -> StateDict:
        """The state of this precision for a checkpoint, besides the weights."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what ``state_dict`` returned."""

    def close(self) -> None:
        """Undo this precision's changes to torch itself, at the end of the run."""


def begin_momentum(optimizer: Optimizer) -> None:
    """Create fused SGD's momentum before the first update, as zeros, which give bit-identical results.

    Its kernel does not accept a list in which only some parameters have momentum. If the first update overflows, it
    would leave uninitialized memory as momentum (torch 2.15, _fused_sgd). A gradient scaler could skip such a step
    itself, but would have to synchronize with the GPU at each step. With dampening, zeros would change the first
    update, so momentum is not created here, and the scaler synchronizes.
    """
    if not (isinstance(optimizer, SGD) and optimizer.defaults.get("fused")):
        return
    for group in optimizer.param_groups:
        if group["momentum"] and group["dampening"]:
            optimizer._step_supports_amp_scaling = False
        elif group["momentum"]:
            for parameter in group["params"]:
                if optimizer.state[parameter].get("momentum_buffer") is None:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
