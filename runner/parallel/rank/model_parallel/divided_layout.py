"""Converts between each rank's part of a model and a checkpoint's complete state, under the user's own names.

Tensors are gathered one at a time, so that no rank but the first ever holds more than one complete tensor, and that one
only for a checkpoint in one file.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.lazy import Lazy, real
from manyheads.runner.checkpoint.sharded.rank.rank_share import ABSENT, RankShare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.own_parts import apart, local
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Assembly, Cut
from manyheads.runner.parallel.rank.tensor_layout import TensorLayout
from manyheads.runner.run.checkpoint_places import StateDict

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


class DividedLayout(TensorLayout):
    """Each rank has a part of the model. ``model``: the complete one, before anything is cut."""

    def __init__(self, model: nn.Module, ranks: "ModelParallel"):
        self._ranks = ranks
        self.names = list(model.state_dict())
        self.trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._groups = self._own_groups = [self.trainable]
        self.follow(model, {})

    def follow(self, model: nn.Module, cuts: Mapping[str, Cut]) -> None:
        """Adopt the model after it was cut. ``cuts``: how its parameters were cut, by name."""
        self._model = model
        self._assembly = Assembly(self._ranks, model.state_dict(keep_vars=True), cuts)
        self._parameters = {name for name, _ in model.named_parameters()}

    def group(self, group_names: list[list[str]]) -> None:
        """Adopt the optimizer's groups. A collective operation of all ranks.

        ``group_names``: the names of this rank's parameters in each group, in order.
        """
        number = {name: index for index, name in enumerate(self.trainable)}
        everywhere = zip(*self._ranks.gather(group_names), strict=True)
        self._groups = [
            sorted({name for names in group for name in names}, key=number.__getitem__) for group in everywhere
        ]
        self._own_groups = group_names

    # -- tensors by name -----------------------------------------------------------------------------

    def local(self, tensor: Tensor) -> Tensor:
        return local(tensor)

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The complete tensors on rank 0, on the CPU, in the model's order; empty elsewhere."""
        order = {name: number for number, name in enumerate(self.names)}
        gathered = self._assembly.gathered({(name, ""): tensor for name, tensor in tensors.items()})
        return {name: gathered[name, ""] for name, _ in sorted(gathered, key=lambda key: order.get(key[0], len(order)))}

    def split(self, tensors: Mapping[str, Any]) -> StateDict:
        """This rank's parts of complete tensors, without those of other stages.

        Tensors whose names the model does not have are kept, so that loading can report them.
        """
        weights, names = self._assembly.own, {*self.names}
        parts = {}
        for name, tensor in tensors.items():
            if name in weights:
                parts[name] = self._assembly.part(name, tensor)
            elif name not in names:
                parts[name] = tensor
        return parts

    # -- the optimizer's state -----------------------------------------------------------------------

    def gather_optimizer(self, optimizer: Optimizer) -> StateDict:
        """The state_dict of an optimizer of the complete model on rank 0; without state elsewhere."""
        state = optimizer.state_dict()
        tensors: dict[tuple[str, str], Tensor] = {}
        plain: dict[str, StateDict] = {}
        trained = dict(self._trained())
        for index, name in enumerate(_flat(self._own_groups)):
            parameter = trained[name]
            for key, value in state["state"].get(index, {}).items():
                if _is_like(value, local(parameter), name):
                    tensors[name, key] = value
                else:
                    plain.setdefault(name, {})[key] = value
        gathered = self._assembly.gathered(tensors)
        plain = {name: values for rank in reversed(self._ranks.gather(plain)) for name, values in rank.items()}
        by_number: dict[int, StateDict] = {}
        if self._ranks.rank == 0:
            number = {name: index for index, name in enumerate(_flat(self._groups))}
            for (name, key), tensor in gathered.items():
                by_number.setdefault(number[name], {})[key] = tensor
            for name, values in plain.items():
                by_number[number[name]] = {**values, **by_number.get(number[name], {})}
        groups = _numbered(state["param_groups"], self._groups)
        return {**state, "state": dict(sorted(by_number.items())), "param_groups": groups}

    # -- without gathering anything ------------------------------------------------------------------

    def share(self, tensors: Mapping[str, Tensor]) -> StateDict:
        """This rank's part of each tensor as a Share, with placeholders for those of other stages."""
        return {name: self._share(name, tensors[name]) if name in tensors else ABSENT for name in self.names}

    def share_optimizer(self, optimizer: Optimizer) -> StateDict:
        """The whole optimizer's state_dict with this rank's part of each tensor as a Share."""
        state = optimizer.state_dict()
        number = {name: index for index, name in enumerate(_flat(self._groups))}
        shares, trained = {}, dict(self._trained())
        for index, name in enumerate(_flat(self._own_groups)):
            shares[number[name]] = {
                key: self._share(name, value) if _is_like(value, local(trained[name]), name) else value
                for key, value in state["state"].get(index, {}).items()
            }
        groups = _numbered(state["param_groups"], self._groups)
        return {**state, "state": {key: value for key, value in shares.items() if value}, "param_groups": groups}

    def _share(self, name: str, part: Tensor) -> RankShare:
        return self._assembly.share(name, part, is_agreed=name in self._parameters)

    # -- the optimizer's parts -----------------------------------------------------------------------

    def split_optimizer(self, state: StateDict) -> StateDict:
        """This rank's part of a plain optimizer's state_dict. Raises ConfigurationError for another model's."""
        groups = state["param_groups"]
        if [len(group["params"]) for group in groups] != [len(names) for names in self._groups]:
            return state  # another model's: loading it reports that
        number = {name: index for index, name in enumerate(_flat(self._groups))}
        by_number = {}
        for index, name in enumerate(_flat(self._own_groups)):
            if (values := state["state"].get(number[name])) is not None:
                by_number[index] = {
                    key: apart(local(real(self._assembly.part(name, value))))
                    if isinstance(value, (Tensor, Lazy)) and value.shape
                    else value
                    for key, value in values.items()
                }
        return {**state, "state": by_number, "param_groups": _numbered(groups, self._own_groups)}

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in self._model.named_parameters() if p.requires_grad)


def _flat(groups: list[list[str]]) -> list[str]:
    return [name for names in groups for name in names]


def _numbered(groups: list[StateDict], names: list[list[str]]) -> list[StateDict]:
    """An optimizer's groups, with their parameters numbered in order as in a state_dict."""
    number = iter(range(len(_flat(names))))
    return [{**group, "params": [next(number) for _ in listed]} for group, listed in zip(groups, names, strict=True)]


def _is_like(value: Any, parameter: Tensor, name: str) -> bool:
    """Whether the optimizer's state has one value for each value of the parameter."""
    if not isinstance(value, Tensor) or not value.ndim:
        return False
    if value.shape != parameter.shape:
        raise ConfigurationError(
            f"optimizer: for {name}, of shape {tuple(parameter.shape)}, its state has the shape {tuple(value.shape)}, "
            "which can't be cut as the weight is. Set optimizer=adamw or sgd, or parallel=ddp.",
            key="optimizer",
        )
    return True
