"""Modules that keep only what they are given between the forward and the backward pass, and compute the rest again."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from manyheads.runner.errors import ConfigurationError


def recompute(units: Mapping[str, nn.Module], *, key: str) -> None:
    """Let modules keep only their inputs, and recompute the rest. Raises ConfigurationError, which names the ``key``.

    Random numbers, as of dropout, are the same in both passes.
    """
    for name, unit in units.items():
        if any(isinstance(module, _BatchNorm) for module in unit.modules()):
            raise ConfigurationError(
                f"{key}: {name} has BatchNorm, whose running statistics would count each batch twice. Leave it out, "
                "or name modules without it.",
                key=key,
            )
        unit.forward = Recomputed(unit.forward)


class Recomputed:
    """A module's ``forward`` that keeps only its inputs. An object, which copies of the module copy too."""

    def __init__(self, forward: Callable[..., Any]):
        self.forward = forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return checkpoint(self.forward, *inputs, use_reentrant=False, **named)
