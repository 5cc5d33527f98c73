"""Builds the optimizer of a run, with its learning rate scaled to the global batch size."""

from collections.abc import Collection, Sequence
from inspect import signature
from typing import Any

from torch import nn
from torch.optim import Optimizer

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.optimizer_option import OptimizerOption
from manyheads.runner.optimizer.rank.gradient_kinds import refuse_unusual, unusual_gradients
from manyheads.runner.optimizer.rank.parameter_groups import ParameterGroup, refuse_unknown
from manyheads.runner.option.locate import load


def build_optimizer(
    option: OptimizerOption,
    model: nn.Module,
    *,
    batch_size: int,
    groups: Sequence[ParameterGroup] = (),
    only: Collection[str] | None = None,
) -> Optimizer:
    """Build the option's optimizer for the parameters that are trained.

    groups: those of the complete model, of which ``model`` may be a part; () for a single group with the optimizer's
    own settings; only: names of the parameters that it gets, None for all. Raises ConfigurationError.
    """
    if option.builder is not None:
        return load(option.builder)(option, model, batch_size=batch_size, groups=groups)
    kind, options = option.kind, option.arguments("lr", "lr_scaling", "base_batch_size")
    unusual = unusual_gradients(model)  # which no fused kernel takes
    if unusual or not options.get("fused"):  # fused=False would turn off torch's own choice, foreach on GPUs
        options.pop("fused", None)
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    lr = option.scaled_lr(batch_size)
    try:
        optimizer = kind(_parameters(model, groups, lr=lr, only=only), lr=lr, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        if "fused" in options and "fused" in str(error):
            raise ConfigurationError.at(
                f"{option.key}.fused", True, f": {option.target} can't be fused here ({error}). Set it to false."
            ) from None
        raise ConfigurationError.at(
            f"{option.key}._target_", option.target, f" rejects its arguments: {error}."
        ) from None
    refuse_unknown(groups, optimizer.defaults, option.target)
    refuse_unusual(unusual, optimizer, option.target)
    return optimizer


def refuse_unsupported(option: OptimizerOption) -> None:
    """Raises ConfigurationError if its step computes the loss itself, as LBFGS's, or it evaluates other weights."""
    for single in option.singles:
        closure = signature(single.kind.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            why = "computes the loss itself, several times in an update (its step needs a closure)"
        elif hasattr(single.kind, "train") and hasattr(single.kind, "eval"):
            why = "trains other weights than it evaluates, and must be told when (schedule-free)"
        else:
            continue
        rest = f" {why}, which no run supports. Set optimizer=adamw or sgd."
        raise ConfigurationError.at(f"{single.key}._target_", single.target, rest)


def _parameters(
    model: nn.Module, groups: Sequence[ParameterGroup], *, lr: float, only: Collection[str] | None
) -> list[Any]:
    """The optimizer's first argument: parameters, or groups of them, in the same order on every rank."""
    trained = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (only is None or name in only)
    }
    if len(groups) <= 1 and not any(group.settings for group in groups):
        return list(trained.values())
    return [
        {
            "params": [trained[name] for name in group.names if name in trained],
            **{key: value for key, value in group.settings.items() if key != "lr_factor"},
            "lr": lr * group.settings.get("lr_factor", 1),
        }
        for group in groups
    ]
