"""parameters.freeze: parts of a model that are not trained."""

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.parameters.rank.names import matching


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude the parameters that the patterns name from training. Raises ConfigurationError if one names nothing."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        for name in matching(pattern, parameters, key="parameters.freeze"):
            parameters[name].requires_grad_(False)


def norms_of(model: nn.Module) -> list[nn.Module]:
    """The BatchNorm modules with a scale and a shift."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm) and module.affine]


def frozen_norms(model: nn.Module) -> list[nn.Module]:
    """The BatchNorm modules whose scale and shift are not trained, so that their statistics can be frozen too."""
    return [norm for norm in norms_of(model) if not any(parameter.requires_grad for parameter in norm.parameters())]
