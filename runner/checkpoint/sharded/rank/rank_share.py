"""One rank's part of each of a checkpoint's tensors, before they are written."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.dtypes import NAMES
from manyheads.runner.checkpoint.rank.lazy import Lazy, TensorSpec
from manyheads.runner.checkpoint.sharded.index import Box
from manyheads.runner.checkpoint.sharded.safetensors_file import TensorKind
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import StateDict

_MARKS = ("tensor", "tuple", "dict", "float")  # types that JSON lacks


@dataclass(frozen=True)
class RankShare(TensorSpec):
    """A rank's part of a tensor.

    ``shape``: the complete tensor's; ``pieces``: this rank's pieces, each with its box; ``is_agreed``: whether all
    ranks with the same piece have the same values, so that any of them may write it; otherwise the first one does.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[tuple[Box, "Tensor | Lazy"], ...]
    is_agreed: bool = True

    @classmethod
    def whole(cls, tensor: "Tensor | Lazy") -> "RankShare":
        """The share of a rank that has the complete tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, ((Box.whole(tensor.shape), tensor),), is_agreed=False)


ABSENT = RankShare((0,), torch.uint8, ())  # marks the position of a tensor that only other ranks have


class Held(NamedTuple):
    """A share's description for other ranks, without its values."""

    kind: TensorKind
    boxes: tuple[Box, ...]
    is_agreed: bool


class Key(str):
    """Replaces a tensor in a state whose tensors were taken out."""


def parted(value: Any, shares: dict[str, RankShare], key: str = "") -> Any:
    """The structure with a Key in place of each tensor; the tensors are added to ``shares``."""
    if isinstance(value, (Tensor, Lazy, RankShare)):
        if value is not ABSENT:
            shares[key] = value if isinstance(value, RankShare) else RankShare.whole(value)
        return Key(key)
    if isinstance(value, dict):
        return {name: parted(child, shares, f"{key}/{name}" if key else str(name)) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([parted(child, shares, f"{key}/{number}") for number, child in enumerate(value)])
    return value


def versions_of(weights: Any) -> dict[str, int] | None:
    """The modules' version numbers by name, if the weights are a model's state_dict; else None."""
    stored = getattr(weights, "_metadata", None)
    return None if stored is None else {name: about["version"] for name, about in stored.items() if "version" in about}


def with_versions(weights: StateDict, versions: dict[str, int]) -> StateDict:
    """The weights with the modules' version numbers, as in a model's state_dict."""
    state_dict = OrderedDict(weights)
    state_dict._metadata = OrderedDict((name, {"version": version}) for name, version in versions.items())  # type: ignore
    return state_dict


def held(key: str, share: RankShare) -> Held:
    """Describe a share to other ranks. Raises ConfigurationError for a dtype that the files cannot hold."""
    if share.dtype not in NAMES:
        raise ConfigurationError.at(
            "checkpoint.format", "sharded", f": {key} is {share.dtype}, which its files can't hold. Set it to single."
        )
    boxes = tuple(box for box, _ in share.pieces)
    return Held(TensorKind(NAMES[share.dtype], tuple(map(int, share.shape))), boxes, share.is_agreed)


def merged(states: list[Any]) -> Any:
    """The union of the ranks' states: mappings are merged, for all other values the first rank's counts."""
    first = states[0]
    mappings = [state for state in states if isinstance(state, dict)]
    if not isinstance(first, dict) or len(mappings) < len(states):
        return first
    names = list(dict.fromkeys(name for state in mappings for name in state))
    if all(isinstance(name, int) for name in names):
        names.sort()
    return {name: merged([state[name] for state in mappings if name in state]) for name in names}


def without_absent(value: Any, keys: Collection[str]) -> Any:
    """The structure without the tensors that no rank has."""
    if isinstance(value, dict):
        there = {name: child for name, child in value.items() if not isinstance(child, Key) or child in keys}
        return {name: without_absent(child, keys) for name, child in there.items()}
    return value


def to_json(value: Any, key: str = "") -> Any:
    """The structure encoded in JSON's types. Raises ConfigurationError for a value that has no encoding."""
    if isinstance(value, Key):
        return {"tensor": str(value)}
    if isinstance(value, dict):
        if all(isinstance(name, str) for name in value) and not (len(value) == 1 and next(iter(value)) in _MARKS):
            return {name: to_json(child, f"{key}/{name}") for name, child in value.items()}
        return {"dict": [[to_json(name), to_json(child, f"{key}/{name}")] for name, child in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(child, key) for child in value]}
    if isinstance(value, list):
        return [to_json(child, key) for child in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigurationError.at(
        "checkpoint.format",
        "sharded",
        f": {key.strip('/')} is a {type(value).__name__}, which its index can't hold. Set it to single.",
    )


def from_json(value: Any, tensors: dict[str, Any]) -> Any:
    """The inverse of ``to_json``; ``tensors``: by their keys. Raises ValueError for anything else."""
    if isinstance(value, list):
        return [from_json(child, tensors) for child in value]
    if not isinstance(value, dict):
        return value
    mark = next(iter(value)) if len(value) == 1 else None
    if mark == "tensor":
        return tensors[value[mark]]
    if mark == "tuple":
        return tuple(from_json(child, tensors) for child in value[mark])
    if mark == "dict":
        return {from_json(name, tensors): from_json(child, tensors) for name, child in value[mark]}
    if mark == "float":
        return float(value[mark])
    return {name: from_json(child, tensors) for name, child in value.items()}
