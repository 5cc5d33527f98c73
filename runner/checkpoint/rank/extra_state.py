"""Extra state of modules (torch's ``get_extra_state``), packed into tensors, since all else in a state_dict is one.

A model that keeps plain data packs it whenever its state_dict is taken, and unpacks it when it is loaded. So whatever
copies, exchanges, stores or digests weights needs to know of nothing but tensors. Single files hold the plain data, as
torch itself would write it.
"""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.checkpoint.rank.lazy import Lazy, real
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import StateDict

NAME = "_extra_state"
BEGIN = b"manyheads extra state 1\n"


def is_extra(name: str) -> bool:
    """Whether torch gives this name to a module's extra state."""
    return name.rpartition(".")[2] == NAME


def adopt_extra_state(model: nn.Module, target: str) -> None:
    """Let a model's state_dicts hold tensors only. Raises ConfigurationError for extra state that is not plain data."""
    extra = {name: value for name, value in model.state_dict().items() if not isinstance(value, Tensor)}
    for name, value in extra.items():
        try:
            _written(value)
        except TypeError as error:
            raise ConfigurationError.at(
                "model._target_",
                target,
                f": its {name} contains {error}, which no checkpoint can hold. Allowed in get_extra_state: numbers, "
                "strings, tensors, and lists and dicts of these.",
            ) from None
    if extra:
        model.register_state_dict_post_hook(_pack)
        model.register_load_state_dict_pre_hook(_unpack)


def refuse_cut(model: nn.Module, parallel: str) -> None:
    """Raises ConfigurationError for extra state of any size, in a strategy that cuts tensors by their sizes."""
    state = model.state_dict()
    if names := [name for name, value in unpacked(state).items() if value is not state[name]]:
        raise ConfigurationError.at(
            "parallel",
            parallel,
            f" cuts models into parts by the sizes of their tensors, and {names[0]} has no fixed size. Let "
            "get_extra_state return a tensor, or set parallel=ddp or zero1.",
        )


def _pack(module: nn.Module, state: StateDict, prefix: str, metadata: Any) -> None:
    state.update(packed(state))


def _unpack(module: nn.Module, state: StateDict, *rest: Any) -> None:
    state.update(unpacked(state))


def packed(weights: StateDict) -> StateDict:
    """The weights with extra state as tensors of bytes; tensors are unchanged."""
    others = [name for name, value in weights.items() if is_extra(name) and not isinstance(value, (Tensor, Lazy))]
    if not others:
        return weights
    return {**weights, **{name: _tensor(weights[name]) for name in others}}


def unpacked(weights: StateDict) -> StateDict:
    """The weights with extra state as a module returned it; the inverse of ``packed``."""
    stored = {name: real(value) for name, value in weights.items() if is_extra(name)}
    plain = {name: _plain(value) for name, value in stored.items() if isinstance(value, Tensor)}
    return {**weights, **plain} if plain else weights


def _tensor(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(BEGIN + json.dumps(_written(value)).encode()), dtype=torch.uint8)


def _plain(tensor: Tensor) -> Any:
    """Unpack a value; a tensor that a module itself keeps as its extra state is unchanged."""
    if tensor.dtype is not torch.uint8 or tensor.ndim != 1:
        return tensor
    content = tensor.cpu().numpy().tobytes()
    return _read(json.loads(content[len(BEGIN) :])) if content.startswith(BEGIN) else tensor


def _written(value: Any) -> Any:
    """The value for JSON, in which lists begin with their kind. Raises TypeError with the name of another class."""
    if type(value) in (type(None), bool, int, float, str):
        return value
    if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta:
        flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        content = base64.b64encode(flat.numpy().tobytes()).decode()
        return ["tensor", str(value.dtype).removeprefix("torch."), [*value.shape], content]
    if isinstance(value, Mapping):
        return ["dict", *([_written(key), _written(child)] for key, child in value.items())]
    if type(value) in (list, tuple):
        return [type(value).__name__, *map(_written, value)]
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins."))


def _read(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "tensor":
        name, shape, content = rest
        dtype, flat = getattr(torch, name), bytearray(base64.b64decode(content))
        values = torch.frombuffer(flat, dtype=dtype) if math.prod(shape) else torch.zeros(0, dtype=dtype)
        return values.reshape(shape)
    if kind == "dict":
        return {_read(key): _read(child) for key, child in rest}
    return {"list": list, "tuple": tuple}[kind](map(_read, rest))
