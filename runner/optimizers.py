"""The optimizer of a run, with its learning rate fitted to the global batch."""

import math
from typing import Any

from torch import nn
from torch.optim import Optimizer

from runner.errors import ConfigurationError

SCALING = {"none": lambda ratio: 1.0, "linear": lambda ratio: ratio, "sqrt": math.sqrt}


def scaled_lr(section: dict[str, Any], batch_size: int) -> float:
    """``optimizer.lr`` by the policy ``optimizer.lr_scaling``.

    Sources: linear, Goyal et al. 2017 (https://arxiv.org/abs/1706.02677); sqrt, Krizhevsky 2014
    (https://arxiv.org/abs/1404.5997).
    """
    return section["lr"] * SCALING[section["lr_scaling"]](batch_size / section["base_batch_size"])


def build_optimizer(kind: type, section: dict[str, Any], model: nn.Module, *, batch_size: int) -> Optimizer:
    """An optimizer of class ``kind`` over the parameters that are to be trained."""
    own = ("_target_", "name", "lr", "lr_scaling", "base_batch_size")
    options = {key: value for key, value in section.items() if key not in own}
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    parameters = [p for p in model.parameters() if p.requires_grad]
    try:
        return kind(parameters, lr=scaled_lr(section, batch_size), **options)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"optimizer._target_={section['_target_']} refuses its arguments: {error}.") from None
