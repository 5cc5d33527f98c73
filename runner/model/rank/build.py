"""Builds the model of a run from the config's section ``model``."""

import inspect
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from manyheads.runner.checkpoint.rank.fit import Unfit, load_model
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.data.base.option import Data
from manyheads.runner.model.rank.pretrained import load_file
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import arguments_of, call, locate, signature

DEFAULT = "DEFAULT"  # the recommended entry of every weights enum in torchvision
FIT = "Set model= to the one it was trained with, or checkpoint.strict=false to load only the weights that fit."


class Built(NamedTuple):
    """A model with its origin. ``pretrained``: the weights it started from; ``unfit``: what checkpoint.load skipped."""

    model: nn.Module
    pretrained: str | None = None
    unfit: Unfit | None = None


def build_model(config: dict[str, Any], data: Data, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build the model with random or given weights, on the CPU. Raises ConfigurationError.

    dtype: of the weights; random weights have the same values in each, up to rounding.
    """
    return built_model(config, data, dtype=dtype).model


def built_model(config: dict[str, Any], data: Data, *, dtype: torch.dtype = torch.float32) -> Built:
    """Build the model on the CPU, and return it with the origin of its weights. Raises ConfigurationError."""
    path, strict = config["checkpoint"]["load"], config["checkpoint"]["strict"]
    if path is None:
        return _pretrained(config, data, dtype)
    if strict:  # replaces all weights
        model, content = bare_model(config, data, dtype=dtype), load(path)
        load_model(model, content.get("model", content), path, advice=FIT)
        return Built(model)
    built, content = _pretrained(config, data, dtype), load(path)
    return built._replace(unfit=load_model(built.model, content.get("model", content), path, strict=False))


def bare_model(config: dict[str, Any], data: Data, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build the model for weights that will replace all of its own, without reading a file of weights.

    A class with an argument ``is_filled`` gets True and downloads none either; others get ``weights`` as in training,
    since these may change the model's structure.
    """
    name, accepts = config["model"]["pretrained"], _accepted(config)
    if name in (None, False) or "weights" not in accepts or (name is not True and _is_file(name)):
        return _made(config, data, dtype)
    filled = {"is_filled": True} if "is_filled" in accepts else {}
    return _made(config, data, dtype, given={"weights": DEFAULT if name is True else name, **filled})


def _pretrained(config: dict[str, Any], data: Data, dtype: torch.dtype) -> Built:
    """Build the model with the weights that model.pretrained names, if any."""
    name, accepts = config["model"]["pretrained"], _accepted(config)
    if name in (None, False):
        return Built(_made(config, data, dtype))
    if name is not True and _is_file(name):
        model = _made(config, data, dtype)
        load_file(model, name)
        return Built(model, name)
    if "pretrained" in accepts:  # as in the models of timm
        given = {"pretrained": name}
    elif "weights" in accepts:
        given = {"weights": DEFAULT if name is True else name}
    else:
        raise ConfigurationError(
            f"model.pretrained={name}: there is no such file, and model._target_={config['model']['_target_']} does "
            "not accept the names of weights. Set it to a .pt file, or null."
        )
    model = _made(config, data, dtype, given=given)
    return Built(model, str(getattr(model, "began_with", name)))


def _accepted(config: dict[str, Any]) -> Any:
    """The arguments of the model's class."""
    return signature(locate("model", config["model"]["_target_"])).parameters


def _is_file(name: str) -> bool:
    return Path(name).expanduser().is_file()


def _made(config: dict[str, Any], data: Data, dtype: torch.dtype, *, given: dict[str, Any] | None = None) -> nn.Module:
    """Instantiate the class with the section's keys, the data's properties that it accepts, and ``given``."""
    target, name, section = config["model"]["_target_"], config["model"]["name"], arguments_of("model", config["model"])
    section.pop("pretrained")
    kind, accepts = locate("model", target), _accepted(config)
    classes = section.pop("num_classes")
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepts.values())
    count = classes or data.num_classes
    if "num_classes" in accepts and count is None and accepts["num_classes"].default is inspect.Parameter.empty:
        if "num_classes" in config["data"]:
            raise ConfigurationError("data.num_classes is not set, and the data set has no num_classes. Set it.")
        raise ConfigurationError(
            f"data={config['data']['name']} has no classes, and model={name} needs its number of outputs. Set "
            "model.num_classes (1 for a single value), or choose another model, such as model=mlp."
        )
    if ("num_classes" in accepts or takes_any or classes is not None) and count is not None:
        section["num_classes"] = count
    for key, value in (("name", name), ("image_size", getattr(data, "image_size", None))):
        if key in accepts and target.startswith("manyheads.runner.model."):
            section[key] = value
    if "num_inputs" in accepts and section.get("num_inputs") is None:
        section["num_inputs"] = _features(data)
    model = call("model", target, kind, **section, **(given or {}))
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"model._target_={target} is not a torch.nn.Module. Choose a model class.")
    return model.to(dtype)  # before loading, so that double-precision weights keep their digits


def _features(data: Data) -> int:
    """Number of values in a sample."""
    if (found := getattr(data, "num_inputs", None)) is not None:
        return found
    if (side := getattr(data, "image_size", None)) is not None:
        return 3 * side**2
    raise ConfigurationError("model.num_inputs is not set, and the data set does not define it. Set it.")
