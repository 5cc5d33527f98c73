"""Creates momentum before the first update."""

import torch
from torch.optim import SGD, Optimizer


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
