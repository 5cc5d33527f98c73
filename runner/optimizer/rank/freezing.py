"""parameters.freeze_epochs: parts of a model that are frozen in some epochs, such as all but the head in the first.

A frozen part is skipped by the update: neither weight decay nor momentum changes it, it does not count in the gradient
norm, and its optimizer state is created at its first update. Its gradients are still computed and reduced, because the
wrappers of data parallelism are built for a fixed set of parameters; ``freeze`` saves that cost.

Sources: unfreezing from the head down, Howard and Ruder 2018 (https://arxiv.org/abs/1801.06146); freezing from the
first layer up, Brock et al. 2017 (https://arxiv.org/abs/1706.04983).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.tied import trained_names
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.rank.parameter_groups import matching, means
from manyheads.runner.precision.rank.precision import begin_momentum


class Rest(NamedTuple):
    """Parameters, by ``names``, frozen before epoch ``until`` and from epoch ``begin`` on, both counted from 1."""

    names: frozenset[str]
    until: int | None
    begin: int | None

    def holds(self, epoch: int) -> bool:
        """Whether they are frozen in an epoch, counted from 0."""
        return (self.until is not None and epoch + 1 < self.until) or (
            self.begin is not None and epoch + 1 >= self.begin
        )


def find_rests(model: nn.Module, entries: Sequence[Mapping[str, Any]], *, epochs: int) -> list[Rest]:
    """The parameters of a complete model that the config's entries freeze. Raises ConfigurationError."""
    trained = trained_names(model)
    rests = []
    for number, entry in enumerate(entries):
        patterns = [entry["match"]] if isinstance(entry["match"], str) else entry["match"]
        key = f"parameters.freeze_epochs.{number}.match"
        names = frozenset(trained[name] for pattern in patterns for name in matching(pattern, trained, key=key))
        rests.append(Rest(names, entry.get("until"), entry.get("from")))
    for epoch in range(epochs):
        if rests and not {*trained.values()} - resting(rests, epoch):
            raise ConfigurationError(
                f"parameters.freeze_epochs: nothing is trained in epoch {epoch + 1}. Exclude some part of the model "
                "from its patterns.",
                key="parameters.freeze_epochs",
            )
    return rests


def resting(rests: Sequence[Rest], epoch: int) -> set[str]:
    """The names of the parameters that are frozen in an epoch, counted from 0."""
    return {name for rest in rests if rest.holds(epoch) for name in rest.names}


class Phases:
    """Freezes this rank's parameters epoch by epoch. ``keeps_statistics``: also freeze the statistics of BatchNorm.

    ``updated``: the optimizer's parameters by name, which may be shards or fp32 copies of the model's own.
    """

    def __init__(
        self, model: nn.Module, updated: Mapping[str, nn.Parameter], rests: Sequence[Rest], *, keeps_statistics: bool
    ):
        self._rests, self._updated, self._own = rests, updated, dict(model.named_parameters())
        self._norms = norms_of(model) if keeps_statistics else []
        self.enter(0)

    def enter(self, epoch: int) -> None:
        """Freeze and unfreeze parameters for ``epoch``, counted from 0."""
        names = resting(self._rests, epoch)
        held = [parameter for name, parameter in self._own.items() if name in names]
        self.parameters = [*held, *(parameter for name, parameter in self._updated.items() if name in names)]
        numbers = set(map(id, held))
        self.norms = [norm for norm in self._norms if all(id(p) in numbers for p in norm.parameters())]

    def drop_gradients(self) -> None:
        """Drop the gradients of frozen parameters, which makes every optimizer skip them."""
        for parameter in self.parameters:
            parameter.grad = None


def build_phases(
    model: nn.Module,
    optimizer: Optimizer,
    updated: Mapping[str, nn.Parameter],
    rests: Sequence[Rest],
    *,
    keeps_statistics: bool,
) -> Phases | None:
    """Build the phases for this rank's model and optimizer; None if nothing is ever frozen.

    Raises ConfigurationError for an optimizer that cannot skip parameters.
    """
    if not rests:
        return None
    if any(group.get("momentum") and group.get("dampening") and group.get("fused") for group in optimizer.param_groups):
        raise ConfigurationError(
            "parameters.freeze_epochs: fused SGD with dampening cannot start with only some of its parameters. Set "
            "optimizer.dampening=0.",
            key="parameters.freeze_epochs",
        )
    begin_momentum(getattr(optimizer, "optim", optimizer))  # zero1 wraps the actual optimizer
    return Phases(model, updated, rests, keeps_statistics=keeps_statistics)


def freeze(model: nn.Module, patterns: Sequence[str], *, key: str = "parameters.freeze") -> None:
    """Exclude the parameters that the patterns name from training. Raises ConfigurationError if one names nothing."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        for name in matching(pattern, parameters, key=key):
            parameters[name].requires_grad_(False)


def norms_of(model: nn.Module) -> list[nn.Module]:
    """The BatchNorm modules with a scale and a shift."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm) and module.affine]


def frozen_norms(model: nn.Module, patterns: Sequence[str]) -> list[nn.Module]:
    """The BatchNorm modules whose scale and shift the patterns freeze, so that their statistics can be frozen too.

    Those that the model has frozen itself normalize as it says: its own code may train beside them by the batch.
    """
    norms = set(norms_of(model))
    named = [
        (module, f"{path}.".lstrip("."))
        for path, module in model.named_modules(remove_duplicate=False)
        if module in norms
    ]
    return [
        norm
        for norm, path in named
        if not any(parameter.requires_grad for parameter in norm.parameters())
        and any(means(pattern, f"{path}{name}") for pattern in patterns for name, _ in norm.named_parameters())
    ]
