"""Builds the model of a run from the config's section ``model``."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.checkpoint.rank.extra_state import adopt_extra_state
from manyheads.runner.checkpoint.rank.fit import Unfit, load_file, load_model, read_weights
from manyheads.runner.data.data_option import Data
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.locate import call, combined, signature
from manyheads.runner.parallel.rank.structure import call as call_model

Conversion = Callable[[nn.Module], nn.Module]  # of a model as its constructor returns it, before weights are loaded
SINGLE: Conversion = partial(converted, dtype=torch.float32)
DEFAULT = "DEFAULT"  # the recommended entry of every weights enum in torchvision
FIT = "Set model= to the one it was trained with, or checkpoint.strict=false to load only the weights that fit."


class Built(NamedTuple):
    """A model with its origin. ``pretrained``: the weights it started from.

    ``unfit``: what was skipped of a file of weights; ``prefix``: what was removed from the names in it.
    """

    model: nn.Module
    pretrained: str | None = None
    unfit: Unfit | None = None
    prefix: str = ""


def build_model(
    option: ModelOption,
    data: Data,
    *,
    convert: Conversion = SINGLE,
    load_from: str | None = None,
    strict: bool = True,
    is_put_off: bool = False,
) -> Built:
    """Build the model on the CPU, with random or given weights, and return it with the origin of its weights.

    convert: to the dtype of the weights; random weights have the same values in each, up to rounding. load_from,
    strict: the keys ``load`` and ``strict`` of the config's section ``checkpoint``. is_put_off: as for read_weights.
    Raises ConfigurationError.
    """
    if load_from is None:
        return _pretrained(option, data, convert, is_put_off=is_put_off)
    if strict:  # replaces all weights
        model = bare_model(option, data, convert=convert)
        weights, prefix = read_weights(model, load_from, is_put_off=is_put_off)
        load_model(model, weights, load_from, advice=FIT)
        return Built(model, prefix=prefix)
    built = _pretrained(option, data, convert, is_put_off=is_put_off)
    weights, prefix = read_weights(built.model, load_from, is_put_off=is_put_off)
    return built._replace(unfit=load_model(built.model, weights, load_from, strict=False), prefix=prefix)


def bare_model(option: ModelOption, data: Data, *, convert: Conversion = SINGLE) -> nn.Module:
    """Build the model for weights that will replace all of its own, without reading a file of weights.

    A class with an argument ``is_filled`` gets True and downloads none either; others get ``weights`` as in training,
    since these may change the model's structure.
    """
    name, accepts = option.pretrained, signature(option.kind).parameters
    if name in (None, False) or "weights" not in accepts or (isinstance(name, str) and _is_file(name)):
        return _made(option, data, convert)
    filled = {"is_filled": True} if "is_filled" in accepts else {}
    return _made(option, data, convert, given={"weights": DEFAULT if name is True else name, **filled})


def _pretrained(option: ModelOption, data: Data, convert: Conversion, *, is_put_off: bool) -> Built:
    """Build the model with the weights that model.pretrained names, if any."""
    name, accepts = option.pretrained, signature(option.kind).parameters
    if name in (None, False):
        return Built(_made(option, data, convert))
    if isinstance(name, str) and _is_file(name):
        model = _made(option, data, convert)
        return Built(model, name, *load_file(model, name, is_put_off=is_put_off))
    if "pretrained" in accepts:  # as in the models of timm
        given = {"pretrained": name}
    elif "weights" in accepts:
        given = {"weights": DEFAULT if name is True else name}
    else:
        raise ConfigurationError.at(
            "model.pretrained",
            name,
            f": there is no such file, and model._target_={option.target} does not accept the "
            "names of weights. Set it to a .pt file, or null.",
        )
    model = _made(option, data, convert, given=given)
    return Built(model, str(getattr(model, "began_with", name)))


def _is_file(name: str) -> bool:
    return Path(name).expanduser().is_file()


def _made(option: ModelOption, data: Data, convert: Conversion, *, given: dict[str, Any] | None = None) -> nn.Module:
    """Instantiate the class with the option's keys, the data's properties that it accepts, and ``given``."""
    kind, accepts, options = option.kind, signature(option.kind).parameters, option.arguments("pretrained")
    classes = options.pop("num_classes", None)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepts.values())
    count = classes or data.num_classes
    if "num_classes" in accepts and count is None and accepts["num_classes"].default is inspect.Parameter.empty:
        raise ConfigurationError(data.without_classes)
    if ("num_classes" in accepts or takes_any or classes is not None) and count is not None:
        options["num_classes"] = count
    for key, value in (("name", option.name), ("image_size", getattr(data, "image_size", None))):
        if key in accepts and option.target.startswith("manyheads.runner.model."):
            options[key] = value
    if "num_inputs" in accepts and options.get("num_inputs") is None:
        options["num_inputs"] = _features(data)
    if "categories" in accepts:
        options.setdefault("categories", data.categories)
    model = call("model", option.target, kind, **combined("model", options, given or {}))
    if not isinstance(model, nn.Module):
        raise ConfigurationError.at("model._target_", option.target, " is not a torch.nn.Module. Choose a model class.")
    adopt_extra_state(model, option.target)
    return convert(model)  # before loading, so that double-precision weights keep their digits


def _features(data: Data) -> int:
    """Number of values in a sample."""
    if data.num_inputs is not None:
        return data.num_inputs
    if (side := getattr(data, "image_size", None)) is not None:
        return 3 * side**2
    raise ConfigurationError(
        "model.num_inputs is not set, and the data set has no num_inputs. Set it to the number of values in a sample.",
        key="model.num_inputs",
    )


def materialize(model: nn.Module, first: Callable[[int], Any], *, seed: int) -> None:
    """Let lazy modules learn their shapes from a pass of two samples; their weights are random by ``seed``.

    ``first``: as for ``initialize_from_data``. Other models are left unchanged.
    """
    if not any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        return
    inputs, modes = first(2), {module: module.training for module in model.modules()}
    seed_everything(seed)
    with torch.no_grad():
        call_model(model.eval(), inputs)
    for module, is_training in modes.items():
        module.training = is_training


def initialize_from_data(model: nn.Module, first: Callable[[int], Any]) -> None:
    """Call a model's ``initialize`` with the inputs of as many training samples as its ``initial_samples`` says.

    first: returns the inputs of that many samples on the CPU, the same on every rank. Models without
    ``initial_samples`` are left unchanged.
    """
    count = getattr(model, "initial_samples", None)
    if isinstance(count, int):
        with torch.no_grad():
            model.initialize(first(count))  # type: ignore[operator]
