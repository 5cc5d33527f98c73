"""Load weights, of a checkpoint or pretrained, into a model and its optimizer, or explain why they do not fit."""

import copy
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.checkpoint.sharded.rank.rank_share import Lazy, StateDict
from manyheads.runner.checkpoint.sharded.rank.read_sharded import real
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.wording import listed

AT_ONCE = 2**28  # bytes of weights that are read before they are put into the model
SHOWN = 8  # names of weights in a message
# Settings by which types of optimizers differ; others depend on the version of torch, or are added during training.
KINDS = {"momentum", "betas", "alpha", "rho", "lambd", "etas"}


class Unfit(NamedTuple):
    """Names of weights that do not fit between a model and a checkpoint.

    ``missing``: only the model has them; ``unexpected``: only the checkpoint has them; ``shapes``: both have them, in
    different shapes.
    """

    missing: list[str]
    unexpected: list[str]
    shapes: list[str]

    def __str__(self) -> str:
        """A clause with some names of each."""
        said = {"missing from it": self.missing, "not in the model": self.unexpected, "with another shape": self.shapes}
        return "; ".join(f"{words}: {listed(names, SHOWN)}" for words, names in said.items() if names)


def load_model(
    model: torch.nn.Module,
    weights: dict[str, Tensor],
    source: str | Path,
    *,
    strict: bool = True,
    advice: str = "Set model= to the one it was trained with.",
) -> Unfit:
    """Load the weights into the model; returns what did not fit.

    ``strict``: all weights must fit; ``advice``: the last sentence of the error. Raises ConfigurationError if the
    weights belong to another model: not all of them fit, or, without ``strict``, none does.
    """
    own = model.state_dict()
    if not (isinstance(weights, dict) and all(isinstance(weight, (Tensor, Lazy)) for weight in weights.values())):
        raise ConfigurationError(f"the checkpoint {source} holds no named weights.")
    unfit = Unfit(
        missing=[name for name in own if name not in weights],
        unexpected=[name for name in weights if name not in own],
        shapes=[name for name in own if name in weights and weights[name].shape != own[name].shape],
    )
    count = sum(map(len, unfit))
    if count and strict:
        raise ConfigurationError(
            f"the checkpoint {source} belongs to another model: {count} of its names or shapes don't fit "
            f"({unfit}). {advice}"
        )
    if own and len(own) == len(unfit.missing) + len(unfit.shapes):
        raise ConfigurationError(f"the checkpoint {source} belongs to another model: none of its weights fit. {advice}")
    fitting = copy.copy(weights)  # with the version numbers that some modules need for loading
    for name in (*unfit.unexpected, *unfit.shapes):
        del fitting[name]
    for part in _parts(fitting):
        model.load_state_dict(part, strict=strict and len(part) == len(fitting))
    return unfit


def _parts(weights: StateDict) -> Iterator[dict[str, Tensor]]:
    """The weights, a few at a time if they still have to be read."""
    if not any(isinstance(weight, Lazy) for weight in weights.values()):
        yield weights
        return
    part = copy.copy(weights)
    part.clear()
    for name, weight in weights.items():
        part[name] = real(weight)
        if sum(tensor.nbytes for tensor in part.values()) >= AT_ONCE:
            yield part
            part.clear()
    yield part


def load_optimizer(optimizer: Optimizer, state: StateDict, source: str | Path) -> None:
    """Load the optimizer's state. Raises ConfigurationError if it belongs to another type of optimizer."""
    saved, own = (KINDS & set().union(*groups) for groups in (state["param_groups"], optimizer.param_groups))
    if saved != own:
        raise ConfigurationError(
            f"the checkpoint {source} belongs to another optimizer, one with "
            f"{', '.join(sorted(saved)) or 'other settings'} where this one has {', '.join(sorted(own)) or 'none'}. "
            "Set optimizer= to the one it was trained with."
        )
    sizes, own_sizes = (
        [len(group["params"]) for group in groups] for groups in (state["param_groups"], optimizer.param_groups)
    )
    if sizes != own_sizes:
        was, has = (" + ".join(map(str, each)) for each in (sizes, own_sizes))
        raise ConfigurationError(
            f"the checkpoint {source} has {was} trainable parameters in its groups, where this run has {has}. Set "
            "parameters.* to what it was trained with, or start from its weights alone with checkpoint.load."
        )
    optimizer.load_state_dict({**state, "param_groups": _with_own_settings(optimizer, state["param_groups"])})
    lay_out_as_weights(optimizer)


def lay_out_as_weights(optimizer: Optimizer) -> None:
    """Give the optimizer's state, such as momentum, the memory format of the weights.

    torch keeps the format that was saved. If that is another one, fused optimizers combine elements of different
    positions.
    """
    for weight, own in optimizer.state.items():
        for name, value in own.items():
            is_apart = type(value) is Tensor and value.shape == weight.shape and value.stride() != weight.stride()
            if is_apart:
                own[name] = torch.empty_like(weight, dtype=value.dtype, device=value.device).copy_(value)


def _with_own_settings(optimizer: Optimizer, saved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Saved groups with this run's settings, such as weight decay, except for those that training changes."""
    names = set(getattr(optimizer, "defaults", {})) - {"lr"}  # which the schedule sets
    return [
        {name: own[name] if name in names & own.keys() else value for name, value in group.items()}
        for group, own in zip(saved, optimizer.param_groups, strict=True)
    ]


def load_file(model: nn.Module, path: str) -> None:
    """Load weights from a file that contains a state_dict, or one under the key "model" or "state_dict"."""
    content = load(Path(path).expanduser().resolve())
    state = content.get("model") or content.get("state_dict") or content
    for prefix in ("module.", "_orig_mod."):  # of models saved within DataParallel, DDP or torch.compile
        if all(key.startswith(prefix) for key in state):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    load_weights(model, state, path)


def load_weights(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load the weights that fit; a last layer for other classes stays random. ``source``: for the error.

    Raises ConfigurationError if more than the last layer does not fit.
    """
    own = model.state_dict()
    metadata = getattr(state, "_metadata", None)  # version numbers, which some modules need to load
    state = {key: value for key, value in state.items() if not key.lower().startswith("aux")}
    unfit = {key for key in own if key not in state or state[key].shape != own[key].shape}
    last = list(own)[-1].rpartition(".")[0] if own else ""
    wrong = {key for key in unfit if key.rpartition(".")[0] != last} | (set(state) - set(own))
    if wrong:
        raise ConfigurationError.at(
            "model.pretrained",
            source,
            f" holds the weights of another model: {', '.join(sorted(wrong)[:4])} don't fit.",
        )
    fitting = OrderedDict((key, value) for key, value in state.items() if key not in unfit)
    if metadata is not None:
        fitting._metadata = metadata  # type: ignore[attr-defined]
    model.load_state_dict(fitting, strict=False)
