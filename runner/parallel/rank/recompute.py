"""Activations that are computed again in the backward pass instead of being kept.

Source: Chen et al. 2016 (https://arxiv.org/abs/1604.06174).
"""

from collections.abc import Mapping

from torch import nn
from torch.distributed._composable import checkpoint
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.run.errors import ConfigurationError


def recompute(units: Mapping[str, nn.Module], *, key: str) -> None:
    """Let these modules, by name, keep their inputs only. Raises ConfigurationError, which names the ``key``.

    Random numbers, as of dropout, are the same in both passes.
    """
    for name, unit in units.items():
        if any(isinstance(module, _BatchNorm) for module in unit.modules()):
            raise ConfigurationError(
                f"{key}: {name} has BatchNorm, whose running statistics would count each batch twice. Leave it out, "
                "or name modules without it."
            )
        checkpoint(unit)
