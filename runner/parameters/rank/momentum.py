"""Momentum that is there before the first update."""

import torch
from torch.optim import SGD, Optimizer


def begin_momentum(optimizer: Optimizer) -> None:
    """Give fused SGD its momentum before the first update: zeros, from which come the same bits.

    Its kernel takes no list of parameters of which some have it and others have not. Told of an overflow in the first
    update, it would leave as momentum memory that was never written (torch 2.15, _fused_sgd). A gradient scaler could
    leave out such a step itself, but has to wait for the GPU at each one to know. With dampening the first update is
    another one than from zeros, so that there it waits.
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
