"""Between each rank's part of a model and the whole of it, as checkpoints hold it: under the user's own names.

A tensor is put together at a time, so that no rank but the first ever holds more of the whole than one tensor.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from manyheads.runner.checkpoint.sharded.rank.read import Stored, real
from manyheads.runner.checkpoint.sharded.rank.share import ABSENT, Share
from manyheads.runner.parallel.model_parallel.rank.shares import StoredPart, place_of
from manyheads.runner.parallel.model_parallel.rank.tensors import local
from manyheads.runner.run.errors import ConfigurationError


class Cut(NamedTuple):
    """How the ranks of a tensor group share a tensor: along ``dim``, each of whose ``blocks`` equal blocks is cut."""

    dim: int
    blocks: int = 1

    def part(self, whole: Tensor, rank: int, size: int) -> Tensor:
        """The rank's own part, (..., n / size, ...)."""
        blocks = whole.unflatten(self.dim, (self.blocks, -1))
        return blocks.chunk(size, dim=self.dim + 1)[rank].flatten(self.dim, self.dim + 1).contiguous()

    def whole(self, parts: list[Tensor]) -> Tensor:
        """From the parts of all ranks, in order."""
        blocks = [part.unflatten(self.dim, (self.blocks, -1)) for part in parts]
        return torch.cat(blocks, dim=self.dim + 1).flatten(self.dim, self.dim + 1)


class Ranks(Protocol):
    """What has to be known of the ranks.

    ``tensor_group``: those that hold parts of the same tensors by a Cut, None for one; ``tensor_rank``,
    ``tensor_size``: in it; ``is_staged``: whether others hold other tensors; ``is_speaker``: whether this rank sends
    what those of its stage have; ``gather``: a value of each rank.
    """

    rank: int
    device: torch.device

    @property
    def tensor_group(self) -> Any: ...
    @property
    def tensor_rank(self) -> int: ...
    @property
    def tensor_size(self) -> int: ...
    @property
    def is_staged(self) -> bool: ...
    @property
    def is_speaker(self) -> bool: ...
    def gather(self, value: Any) -> list[Any]: ...


class WholeState:
    """``model``: whole, before anything is cut; ``cuts``: by the name of a parameter or buffer."""

    def __init__(self, model: nn.Module, ranks: Ranks):
        self._ranks = ranks
        self.names = list(model.state_dict())
        self.trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.cuts: dict[str, Cut] = {}
        self._groups = self._own_groups = [self.trainable]
        self.follow(model)

    def follow(self, model: nn.Module) -> None:
        """The model as it is now that it has been cut."""
        self._model, self._own = model, model.state_dict(keep_vars=True)
        self._parameters = {name for name, _ in model.named_parameters()}

    def group(self, own: list[list[str]]) -> None:
        """Names of this rank's parameters in the optimizer's groups, in its order. All ranks call it."""
        number = {name: index for index, name in enumerate(self.trainable)}
        everywhere = zip(*self._ranks.gather(own), strict=True)
        self._groups = [
            sorted({name for names in group for name in names}, key=number.__getitem__) for group in everywhere
        ]
        self._own_groups = own

    # -- tensors by name -----------------------------------------------------------------------------

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The whole tensors on rank 0, on the CPU, in the model's order; nothing elsewhere."""
        order = {name: number for number, name in enumerate(self.names)}
        found = self._gathered({(name, ""): tensor for name, tensor in tensors.items()})
        return {name: found[name, ""] for name, _ in sorted(found, key=lambda key: order.get(key[0], len(order)))}

    def split(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """This rank's part of them, without what other stages have. Names that the model lacks stay, to be named."""
        own, known = self._own, {*self.names}
        found = {}
        for name, tensor in tensors.items():
            if name in own:
                found[name] = self._part(name, tensor, own[name])
            elif name not in known:
                found[name] = tensor
        return found

    # -- the optimizer's -----------------------------------------------------------------------------

    def gather_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        """A plain optimizer's state_dict on rank 0; without state elsewhere."""
        tensors: dict[tuple[str, str], Tensor] = {}
        plain: dict[str, dict[str, Any]] = {}
        own = dict(self._trained())
        for index, name in enumerate(_flat(self._own_groups)):
            parameter = own[name]
            for key, value in state["state"].get(index, {}).items():
                if _is_like(value, local(parameter), name):
                    tensors[name, key] = value
                else:
                    plain.setdefault(name, {})[key] = value
        whole = self._gathered(tensors)
        plain = {name: values for rank in reversed(self._ranks.gather(plain)) for name, values in rank.items()}
        found: dict[int, dict[str, Any]] = {}
        if self._ranks.rank == 0:
            number = {name: index for index, name in enumerate(_flat(self._groups))}
            for (name, key), tensor in whole.items():
                found.setdefault(number[name], {})[key] = tensor
            for name, values in plain.items():
                found[number[name]] = {**values, **found.get(number[name], {})}
        groups = _numbered(state["param_groups"], self._groups)
        return {**state, "state": dict(sorted(found.items())), "param_groups": groups}

    # -- without putting anything together -----------------------------------------------------------

    def share(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """This rank's part of each, as a Share; with a place for those that other stages have."""
        return {name: self._share(name, tensors[name]) if name in tensors else ABSENT for name in self.names}

    def share_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        """The same of a plain optimizer's state_dict."""
        number = {name: index for index, name in enumerate(_flat(self._groups))}
        shares, own = {}, dict(self._trained())
        for index, name in enumerate(_flat(self._own_groups)):
            shares[number[name]] = {
                key: self._share(name, value) if _is_like(value, local(own[name]), name) else value
                for key, value in state["state"].get(index, {}).items()
            }
        groups = _numbered(state["param_groups"], self._groups)
        return {**state, "state": {key: value for key, value in shares.items() if value}, "param_groups": groups}

    def _share(self, name: str, part: Tensor) -> Share:
        place = place_of(self._own[name], self.cuts.get(name), self._ranks)
        return place.share(local(part).detach(), is_agreed=name in self._parameters)

    # -- the optimizer's parts -----------------------------------------------------------------------

    def split_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        """This rank's part of a plain optimizer's state_dict. Raises ConfigurationError for another model's."""
        groups, own = state["param_groups"], dict(self._trained())
        if [len(group["params"]) for group in groups] != [len(names) for names in self._groups]:
            return state  # of another model, as loading it will say
        number = {name: index for index, name in enumerate(_flat(self._groups))}
        found = {}
        for index, name in enumerate(_flat(self._own_groups)):
            if (whole := state["state"].get(number[name])) is not None:
                found[index] = {
                    key: local(real(self._part(name, value, own[name])))
                    if isinstance(value, (Tensor, Stored)) and value.ndim
                    else value
                    for key, value in whole.items()
                }
        return {**state, "state": found, "param_groups": _numbered(groups, self._own_groups)}

    # -- one tensor ----------------------------------------------------------------------------------

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in self._model.named_parameters() if p.requires_grad)

    def _whole(self, name: str, part: Tensor) -> Tensor:
        """All ranks that share it call this in the same order."""
        tensor, own = part.detach(), self._own.get(name)
        if isinstance(own, DTensor):
            if not isinstance(tensor, DTensor):  # the optimizer's, or a gradient
                mesh, placed = own.device_mesh, own.placements
                tensor = DTensor.from_local(tensor, mesh, placed, shape=own.shape, stride=own.stride())
            tensor = tensor.full_tensor()
        if (cut := self.cuts.get(name)) is None:
            return tensor
        parts = [
            torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self._ranks.tensor_size)
        ]
        dist.all_gather(parts, tensor.contiguous(), group=self._ranks.tensor_group)
        return cut.whole(parts)

    def _part(self, name: str, whole: Any, own: Tensor) -> Any:
        cut, ranks = self.cuts.get(name), self._ranks
        if isinstance(whole, Stored):
            place = place_of(own, cut, ranks)
            return StoredPart(whole, own, place, ranks.device) if place.shape == tuple(whole.shape) else whole
        if cut is not None and whole.ndim > cut.dim and whole.shape[cut.dim] % (cut.blocks * ranks.tensor_size) == 0:
            whole = cut.part(whole, ranks.tensor_rank, ranks.tensor_size)
        if not isinstance(own, DTensor) or whole.shape != own.shape:  # another model's, as loading it will say
            return whole
        return distribute_tensor(
            whole.to(ranks.device),
            own.device_mesh,
            own.placements,
            src_data_rank=None,  # which every rank has
        )

    def _gathered(self, tensors: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
        """On rank 0 all tensors, whole, on the CPU; one after the other, in the same order everywhere."""
        ranks, is_first = self._ranks, self._ranks.rank == 0
        if not ranks.is_staged:
            found = {}
            for key, tensor in tensors.items():
                whole = self._whole(key[0], tensor)
                if is_first:
                    found[key] = whole.to("cpu", copy=True)
                del whole
            return found
        return self._sent(tensors)

    def _sent(self, tensors: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
        """The same where other ranks than the first have some of them."""
        ranks = self._ranks
        mine = [(key, self._whole_shape(key[0]), tensor.dtype) for key, tensor in tensors.items()]
        listed = ranks.gather(mine if ranks.is_speaker else [])
        found: dict[tuple[str, str], Tensor] = {}
        wanted = [(key, rank, shape, dtype) for rank, keys in enumerate(listed) for key, shape, dtype in keys]
        sender: dict[tuple[str, str], tuple[int, tuple[int, ...], torch.dtype]] = {}
        for key, rank, shape, dtype in wanted:
            sender.setdefault(key, (rank, shape, dtype))  # a weight that several stages have is sent once
        for key, (rank, shape, dtype) in sender.items():
            whole = self._whole(key[0], tensors[key]) if key in tensors else None
            if ranks.rank == 0 and rank != 0:
                whole = torch.empty(shape, dtype=dtype, device=ranks.device)
                dist.recv(whole, src=rank)
            elif ranks.rank == rank != 0:
                assert whole is not None
                dist.send(whole.contiguous(), dst=0)
            if ranks.rank == 0:
                assert whole is not None
                found[key] = whole.to("cpu", copy=True)
        return found

    def _whole_shape(self, name: str) -> tuple[int, ...]:
        shape = list(self._own[name].shape)
        if (cut := self.cuts.get(name)) is not None:
            shape[cut.dim] *= self._ranks.tensor_size
        return tuple(shape)


def _flat(groups: list[list[str]]) -> list[str]:
    return [name for names in groups for name in names]


def _numbered(groups: list[dict[str, Any]], names: list[list[str]]) -> list[dict[str, Any]]:
    """An optimizer's groups with the numbers that as many parameters have in its order."""
    number = iter(range(len(_flat(names))))
    return [{**group, "params": [next(number) for _ in own]} for group, own in zip(groups, names, strict=True)]


def _is_like(value: Any, parameter: Tensor, name: str) -> bool:
    """Whether the optimizer keeps a number there for each number of the parameter."""
    if not isinstance(value, Tensor) or not value.ndim:
        return False
    if value.shape != parameter.shape:
        raise ConfigurationError(
            f"optimizer: for {name}, of shape {tuple(parameter.shape)}, its state has the shape {tuple(value.shape)}, "
            "which can't be cut as the weight is. Set optimizer=adamw or sgd, or parallel=ddp."
        )
    return True
