"""parameters.freeze_epochs: parts of a model that rest in some epochs, such as all but the head in the first ones.

A part at rest is left out of the update: neither weight decay nor momentum moves it, it does not count in the
gradients' norm, and its optimizer state begins with its first update. Its gradients are computed and exchanged all the
same, since what wraps the model of several ranks is built for a fixed set of parameters; ``freeze`` spares that.

Sources: from the head down, Howard and Ruder 2018 (https://arxiv.org/abs/1801.06146); from the first layer up,
Brock et al. 2017 (https://arxiv.org/abs/1706.04983).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer

from manyheads.runner.parameters.rank.freeze import norms_of
from manyheads.runner.parameters.rank.momentum import begin_momentum
from manyheads.runner.parameters.rank.names import matching
from manyheads.runner.run.errors import ConfigurationError


class Rest(NamedTuple):
    """``names``: of parameters that rest before epoch ``until`` and from epoch ``begin`` on, both counted from 1."""

    names: frozenset[str]
    until: int | None
    begin: int | None

    def holds(self, epoch: int) -> bool:
        """Whether they rest in this epoch, counted from 0."""
        return (self.until is not None and epoch + 1 < self.until) or (
            self.begin is not None and epoch + 1 >= self.begin
        )


def find_rests(model: nn.Module, entries: Sequence[Mapping[str, Any]], *, epochs: int) -> list[Rest]:
    """What the entries of the config mean of a whole model. Raises ConfigurationError."""
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    rests = []
    for number, entry in enumerate(entries):
        patterns = [entry["match"]] if isinstance(entry["match"], str) else entry["match"]
        key = f"parameters.freeze_epochs.{number}.match"
        names = frozenset(name for pattern in patterns for name in matching(pattern, trained, key=key))
        rests.append(Rest(names, entry.get("until"), entry.get("from")))
    for epoch in range(epochs):
        if rests and not set(trained) - resting(rests, epoch):
            raise ConfigurationError(
                f"parameters.freeze_epochs: nothing is trained in epoch {epoch + 1}. Exclude some part of the model "
                "from its patterns."
            )
    return rests


def resting(rests: Sequence[Rest], epoch: int) -> set[str]:
    """The names of what rests in an epoch, counted from 0."""
    return {name for rest in rests if rest.holds(epoch) for name in rest.names}


class Phases:
    """This rank's parameters that rest, epoch by epoch. ``keeps_statistics``: so do those of BatchNorm that rests.

    ``updated``: what the optimizer has, by name: shards or copies in fp32, maybe, of the model's own parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        updated: Mapping[str, nn.Parameter],
        rests: Sequence[Rest],
        *,
        keeps_statistics: bool,
    ):
        self._rests, self._updated, self._own = rests, updated, dict(model.named_parameters())
        self._norms = norms_of(model) if keeps_statistics else []
        self.enter(0)

    def enter(self, epoch: int) -> None:
        """Epoch ``epoch``, counted from 0, begins."""
        names = resting(self._rests, epoch)
        held = [parameter for name, parameter in self._own.items() if name in names]
        self.parameters = [*held, *(parameter for name, parameter in self._updated.items() if name in names)]
        numbers = set(map(id, held))
        self.norms = [norm for norm in self._norms if all(id(p) in numbers for p in norm.parameters())]

    def drop_gradients(self) -> None:
        """What rests has no gradients, which every optimizer passes over."""
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
    """For the model and the optimizer as this rank has them; None where nothing ever rests.

    Raises ConfigurationError for an optimizer that cannot pass over parameters.
    """
    if not rests:
        return None
    if any(group.get("momentum") and group.get("dampening") and group.get("fused") for group in optimizer.param_groups):
        raise ConfigurationError(
            "parameters.freeze_epochs: fused SGD with dampening cannot start with only some of its parameters. Set "
            "optimizer.dampening=0."
        )
    begin_momentum(getattr(optimizer, "optim", optimizer))  # zero1 has one of its own in it
    return Phases(model, updated, rests, keeps_statistics=keeps_statistics)
