"""The model and the loss of a run, from the config's sections."""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import nn

from manyheads.runner.checkpoint.rank import load, load_model
from manyheads.runner.data.base.option import Data
from manyheads.runner.model.rank.pretrained import load_file
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import call, locate, signature


def build_model(config: dict[str, Any], data: Data, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model with random or given weights, on the CPU. Raises ConfigurationError.

    dtype: of the weights; random ones are the same numbers in each.
    """
    section = dict(config["model"])
    section.pop("_option_", None)
    target, name, pretrained = section.pop("_target_"), section.pop("name"), section.pop("pretrained")
    kind = locate("model", target)
    accepts = signature(kind).parameters
    classes = section.pop("num_classes")
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepts.values())
    if "num_classes" in accepts or takes_any or classes is not None:
        section["num_classes"] = classes or data.num_classes
    for key, value in (("name", name), ("image_size", getattr(data, "image_size", None))):
        if key in accepts and target.startswith("manyheads.runner.model."):
            section[key] = value
    is_file = pretrained is not None and Path(pretrained).expanduser().is_file()
    if pretrained is not None and not is_file:
        if "weights" not in accepts:
            raise ConfigurationError(
                f"model.pretrained={pretrained}: there is no such file. Set it to a .pt file, or null."
            )
        section["weights"] = pretrained
    model = call("model", target, kind, **section)
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"model._target_={target} makes no torch.nn.Module. Choose a model class.")
    model = model.to(dtype)  # before loading, or weights in double precision would lose half their digits
    if is_file:
        load_file(model, pretrained)
    if (path := config["checkpoint"]["load"]) is not None:
        content = load(path)
        load_model(model, content.get("model", content), path)
    return model


def build_loss(config: dict[str, Any]) -> nn.Module:
    """The loss, with trainer.label_smoothing where its class knows that. Raises ConfigurationError."""
    section = dict(config["loss"])
    target = section.pop("_target_")
    kind = locate("loss", target)
    smoothing = config["trainer"]["label_smoothing"]
    if smoothing:
        if "label_smoothing" not in signature(kind).parameters:
            raise ConfigurationError(
                f"trainer.label_smoothing={smoothing}: {target} has no such argument. Set it to 0."
            )
        section["label_smoothing"] = smoothing
    loss = call("loss", target, kind, **section)
    if not isinstance(loss, nn.Module):
        raise ConfigurationError(f"loss._target_={target} makes no torch.nn.Module. Choose a loss class.")
    return loss
