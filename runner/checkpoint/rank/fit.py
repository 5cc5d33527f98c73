"""Load weights, of a checkpoint or pretrained, into a model and its optimizer, or explain why they do not fit."""

import copy
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.extra_state import is_extra
from manyheads.runner.checkpoint.rank.lazy import Lazy, real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.checkpoint.rank.tied import stored
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option import locate
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.wording import listed

AT_ONCE = 2**28  # bytes of weights that are read before they are put into the model
SHOWN = 8  # names of weights in a message
WRAPPED = re.compile(r"((module|_orig_mod|model)\.)*")  # by DataParallel and DDP, by torch.compile, by Lightning
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
        lists = {
            "missing from it": self.missing,
            "not in the model": self.unexpected,
            "with another shape": self.shapes,
        }
        return "; ".join(f"{words}: {listed(names, SHOWN)}" for words, names in lists.items() if names)


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
    model_state = model.state_dict()
    if not is_named(weights):
        raise ConfigurationError(f"the checkpoint {source} holds no named weights.")
    unfit = _unfit(model, model_state, weights)
    count = sum(map(len, unfit))
    if count and strict:
        raise ConfigurationError(
            f"the checkpoint {source} belongs to another model: {count} of its names or shapes don't fit "
            f"({unfit}). {advice}"
        )
    if model_state and len(model_state) == len(unfit.missing) + len(unfit.shapes):
        raise ConfigurationError(f"the checkpoint {source} belongs to another model: none of its weights fit. {advice}")
    for part in _parts(_fitting(weights, unfit)):
        model.load_state_dict(part, strict=strict and len(part) == len(model_state))
    return unfit


def _fitting(weights: dict[str, Tensor], unfit: Unfit) -> dict[str, Tensor]:
    """The weights that the model has, with the version numbers that some modules need for loading."""
    fitting = copy.copy(weights)
    for name in (*unfit.unexpected, *unfit.shapes):
        del fitting[name]
    return fitting


def is_named(weights: Any) -> bool:
    """Whether these are weights by name, and possibly modules' extra state."""
    return isinstance(weights, dict) and all(
        isinstance(name, str) and (isinstance(leaf, (Tensor, Lazy)) or is_extra(name)) for name, leaf in weights.items()
    )


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
    saved, kinds = (KINDS & set().union(*groups) for groups in (state["param_groups"], optimizer.param_groups))
    if saved != kinds:
        raise ConfigurationError(
            f"the checkpoint {source} belongs to another optimizer, one with "
            f"{', '.join(sorted(saved)) or 'other settings'} where this one has {', '.join(sorted(kinds)) or 'none'}. "
            "Set optimizer= to the one it was trained with."
        )
    sizes, own_sizes = (
        [len(group["params"]) for group in groups] for groups in (state["param_groups"], optimizer.param_groups)
    )
    if sizes != own_sizes:
        was, has = (" + ".join(map(str, lengths)) for lengths in (sizes, own_sizes))
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
    for weight, weight_state in optimizer.state.items():
        for name, value in weight_state.items():
            is_apart = type(value) is Tensor and value.shape == weight.shape and value.stride() != weight.stride()
            if is_apart:
                weight_state[name] = torch.empty_like(weight, dtype=value.dtype, device=value.device).copy_(value)


def _with_own_settings(optimizer: Optimizer, saved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Saved groups with this run's settings, such as weight decay, except for those that training changes."""
    names = set(getattr(optimizer, "defaults", {})) - {"lr"}  # which the schedule sets
    return [
        {name: current[name] if name in names & current.keys() else value for name, value in group.items()}
        for group, current in zip(saved, optimizer.param_groups, strict=True)
    ]


def read_weights(model: nn.Module, path: str, *, is_put_off: bool = False) -> tuple[dict[str, Tensor], str]:
    """The weights in a file for a model, and the prefix that was removed from their names, which may be empty.

    The file contains a state_dict, or one under the key "model" or "state_dict". Names may begin with what
    DataParallel, DDP, torch.compile and Lightning add, nested in any way; weights without the prefix, as of a loss in
    a Lightning module, keep their names. ``is_put_off``: large ones are read when the model gets its values. Raises
    ConfigurationError.
    """
    content = load(Path(path).expanduser().resolve(), is_mapped=is_put_off)
    state = content.get("model") or content.get("state_dict") or content
    model_state = model.state_dict()
    prefix = max(
        dict.fromkeys(["", *(begin for name in state for begin in _prefixes(name))]),
        key=lambda begin: sum(begin + name in state for name in model_state),
    )
    if prefix:
        metadata = getattr(state, "_metadata", None)  # version numbers, which some modules need to load
        state = OrderedDict((name.removeprefix(prefix), weight) for name, weight in state.items())
        if metadata is not None:
            renamed = {f"{name}.".removeprefix(prefix).removesuffix("."): about for name, about in metadata.items()}
            state._metadata = OrderedDict(renamed)  # type: ignore[attr-defined]
    _refuse_untied(model, state, path)
    if is_put_off:
        state = locate.load("manyheads.runner.checkpoint.rank.put_off.stand_ins")(state)
    return state, prefix


def _prefixes(name: Any) -> list[str]:
    """What wrappers may have put before a weight's name, in every length."""
    parts = WRAPPED.match(str(name))[0].split(".")[:-1]  # type: ignore[index]
    return ["".join(f"{part}." for part in parts[: count + 1]) for count in range(len(parts))]


def _refuse_untied(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Raises ConfigurationError if weights that are one in the model have different values in the file."""
    for (first, *others), _ in stored(model, state):
        for other in others:
            one, two = real(state[first]), real(state[other])
            if one is not two and not (one.shape == two.shape and torch.equal(one, two)):
                raise ConfigurationError(
                    f"the checkpoint {source} has different values for {first} and {other}, which are one weight in "
                    "this model. Set model= to the one it was trained with, or load another checkpoint of it."
                )


def load_file(model: nn.Module, path: str, *, is_put_off: bool = False) -> tuple[Unfit, str]:
    """Load weights from a file, as in ``load_weights``; returns what did not fit, and the prefix that was removed."""
    state, prefix = read_weights(model, path, is_put_off=is_put_off)
    return load_weights(model, state, path), prefix


def load_weights(model: nn.Module, state: dict[str, Tensor], source: str) -> Unfit:
    """Load the weights that fit; a last layer for other classes stays random. ``source``: for the error.

    The auxiliary heads that torchvision's weights have are skipped if torchvision's model has none. Returns what did
    not fit. Raises ConfigurationError if more than the last layer does not fit.
    """
    model_state = model.state_dict()
    unfit = _unfit(model, model_state, state)
    is_torchvision = type(model).__module__.startswith("torchvision.")
    strange = [name for name in unfit.unexpected if not (is_torchvision and name.lower().startswith("aux"))]
    last = list(model_state)[-1].rpartition(".")[0] if model_state else ""
    wrong = {name for name in (*unfit.missing, *unfit.shapes) if name.rpartition(".")[0] != last} | {*strange}
    if wrong:
        raise ConfigurationError.at(
            "model.pretrained",
            source,
            f" holds the weights of another model: {', '.join(sorted(wrong)[:4])} don't fit.",
        )
    model.load_state_dict(_fitting(state, unfit), strict=False)
    return unfit


def _unfit(model: nn.Module, model_state: dict[str, Tensor], weights: dict[str, Tensor]) -> Unfit:
    """What does not fit. Of tied weights, one name is enough."""
    tied = {name for _, missing in stored(model, weights) for name in missing}
    return Unfit(
        missing=[name for name in model_state if name not in weights and name not in tied],
        unexpected=[name for name in weights if name not in model_state],
        shapes=[
            name
            for name, value in model_state.items()
            if name in weights and not is_lazy(value) and not is_extra(name) and weights[name].shape != value.shape
        ],
    )
