"""Several optimizers, each for a part of the model, in one: they share its parameter groups and its state."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.tied import trained_names
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.rank.build_optimizer import build_optimizer
from manyheads.runner.optimizer.rank.parameter_groups import ParameterGroup, matching
from manyheads.runner.optimizer.several import SeveralOption
from manyheads.runner.option.tree import Section
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.wording import listed

SHOWN = 4  # names of parameters in a message


class Several(Optimizer):
    """Steps those of its ``parts`` whose parameters have gradients. Its state is that of all of them, in their order.

    ``schedulers``: of the parts that do not have the run's.
    """

    schedulers: Mapping[str, Section] = MappingProxyType({})

    def __init__(self, parts: Mapping[str, Optimizer]):
        super().__init__([group for part in parts.values() for group in part.param_groups], {})
        self.parts = dict(parts)
        self.defaults = {key: value for part in parts.values() for key, value in part.defaults.items()}
        for part in parts.values():
            self.state.update(part.state)
        self._share()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for part in self.parts.values():
            part.step()

    def load_state_dict(self, state_dict: StateDict) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts.values():
            part.param_groups, part.state = [next(groups) for _ in part.param_groups], self.state


def build(
    option: SeveralOption, model: nn.Module, *, batch_size: int, groups: Sequence[ParameterGroup] = ()
) -> Several:
    """The optimizers that the option describes, in one. Raises ConfigurationError, as ``parts_of``."""
    optimizers = {}
    for part, names in parts_of(model, option.patterns).items():
        of_part = [ParameterGroup(group.settings, [*filter(names.__contains__, group.names)]) for group in groups]
        optimizers[part] = build_optimizer(
            option.options[part],
            model,
            batch_size=batch_size,
            groups=[group for group in of_part if group.names],
            only=names,
        )
    several = Several(optimizers)
    several.schedulers = option.schedulers
    return several


def parts_of(model: nn.Module, patterns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The names of each part's trained parameters, by the patterns of its names.

    Raises ConfigurationError for a part without any, and for a parameter in two parts, or in none.
    """
    names = trained_names(model)
    owner: dict[str, str] = {}
    for part, of_part in patterns.items():
        key = f"optimizer.parts.{part}.match"
        for pattern in of_part:
            for name in _matching(pattern, names, model, key=key):
                if (other := owner.setdefault(names[name], part)) != part:
                    raise ConfigurationError.at(
                        key, pattern, f": {name} is in the optimizer {other} too. Narrow one of the two patterns."
                    )
    trained = [*dict.fromkeys(names.values())]
    if left := [name for name in trained if name not in owner]:
        raise ConfigurationError(
            f"optimizer.parts: no optimizer has {listed(left, SHOWN)}. Add it to the match of one, add an optimizer "
            "for it, or freeze it with parameters.freeze.",
            key="optimizer.parts",
        )
    return {part: [name for name in trained if owner[name] == part] for part in patterns}


def _matching(pattern: str, names: Mapping[str, str], model: nn.Module, *, key: str) -> list[str]:
    """The trained parameters that a pattern means. Raises ConfigurationError if there are none."""
    every = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    trained = [name for name in matching(pattern, every, key=key) if name in names]
    if not trained:
        raise ConfigurationError.at(
            key, pattern, ": all of its parameters are frozen, so this optimizer has none. Remove this optimizer."
        )
    return trained
