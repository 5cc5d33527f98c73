"""model=torchvision and its recommended names: the classification and segmentation models of torchvision.models.

Source: https://pytorch.org/vision/stable/models.html.
"""

from collections.abc import Mapping
from typing import Any
from urllib.error import URLError

import torch
import torchvision
from torch import nn
from torchvision import models

from manyheads.runner.checkpoint.rank.fit import load_weights
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.wording import nearest

# Models that are built for a fixed image size, and the argument that sets it.
SIZED = {"vit_": "image_size", "maxvit_": "input_size"}
# Models that accept smaller images than their weights are meant for.
SMALLEST = {"swin_": 4, "efficientnet_v2_": 1}
# In training these also return the outputs of auxiliary classifiers, which a plain loss does not accept.
AUXILIARY = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}


def names() -> list[str]:
    """All classification models of the installed torchvision."""
    return models.list_models(module=torchvision.models)


def segmentation_names() -> list[str]:
    """All segmentation models of the installed torchvision."""
    return models.list_models(module=torchvision.models.segmentation)


def torchvision_model(
    *,
    name: str,
    num_classes: int,
    image_size: int | None,
    weights: str | None = None,
    is_filled: bool = False,
    stochastic_depth_prob: float | None = None,
) -> nn.Module:
    """Build a torchvision model by its name, for images of ``image_size`` pixels per side.

    ``weights``: None for random ones, or an entry of its weights enum, whose full name becomes the model's attribute
    ``began_with``. ``is_filled``: build it for these weights without loading them, since others follow.
    ``stochastic_depth_prob``: None for the model's default. Raises ConfigurationError.
    """
    if name in segmentation_names():
        if stochastic_depth_prob is not None:
            raise ConfigurationError(_unknown_depth(name, stochastic_depth_prob))
        return _segmentation_model(name, num_classes, weights, is_filled=is_filled)
    if name not in names():
        raise _unknown(name)
    options: dict[str, Any] = dict(AUXILIARY.get(name, {}))
    entry = None if weights is None else weights_entry(name, weights, otherwise_none=is_filled)
    if options and entry is not None:  # weights of these two expect a different normalization
        options["transform_input"] = True
    if image_size is not None:
        options |= _size_options(name, image_size)
    options["num_classes"] = num_classes
    model = _classifier(name, options, image_size=image_size, depth=stochastic_depth_prob)
    if entry is not None and not is_filled:
        load_weights(model, _state(entry, weights), str(weights))
        model.began_with = str(entry)  # type: ignore[assignment]
    return model


def _unknown(name: str) -> ConfigurationError:
    model_names = [*names(), *segmentation_names()]
    return ConfigurationError.at(
        "model.name",
        name,
        f": torchvision {torchvision.__version__} has no such model."
        f"{nearest(name, model_names)} `{invocation.command('doctor')} --models` lists them.",
        allowed=model_names,
    )


def _classifier(name: str, options: Mapping[str, Any], *, image_size: int | None, depth: float | None) -> nn.Module:
    """A classification model with random weights. ``depth``: its probability of stochastic depth; None for its default.

    Raises ConfigurationError.
    """
    given = {} if depth is None else {"stochastic_depth_prob": depth}
    try:
        return models.get_model(name, weights=None, **options, **given)
    except TypeError as error:
        if not given:
            raise
        raise ConfigurationError(_unknown_depth(name, depth)) from error
    except (ValueError, AssertionError) as error:
        raise ConfigurationError.at(
            "model.name", name, f" cannot be built for data.image_size={image_size}: {error}"
        ) from None


def _unknown_depth(name: str, probability: float | None) -> str:
    return f"model.stochastic_depth_prob={probability}: torchvision's {name} has no such argument. Set it to null."


def _segmentation_model(name: str, num_classes: int, weights: str | None, *, is_filled: bool) -> nn.Module:
    """A segmentation model, with its auxiliary head if it has one: outputs are dicts.

    Weights for other classes are loaded without the heads.
    """
    options: dict[str, Any] = {} if name.startswith("lraspp") else {"aux_loss": True}
    entry = None if weights is None else weights_entry(name, weights, otherwise_none=is_filled)
    model = models.get_model(name, weights=None, weights_backbone=None, num_classes=num_classes, **options)
    if entry is not None and not is_filled:
        model_state = model.state_dict()
        state = {
            k: v for k, v in _state(entry, weights).items() if k in model_state and model_state[k].shape == v.shape
        }
        model.load_state_dict(state, strict=False)
        model.began_with = str(entry)
    return model


def _size_options(name: str, image_size: int) -> dict[str, Any]:
    for prefix, argument in SIZED.items():
        if name.startswith(prefix):
            return {argument: (image_size, image_size) if argument == "input_size" else image_size}
    usual = max(models.get_model_weights(name).DEFAULT.meta.get("min_size", (1, 1)))
    smallest = next((size for prefix, size in SMALLEST.items() if name.startswith(prefix)), usual)
    if image_size < smallest:
        raise ConfigurationError.at(
            "model.name",
            name,
            f" needs images of at least {smallest}x{smallest} pixels; the data has "
            f"{image_size}x{image_size}. Set data.image_size={smallest} or more, or choose another model.",
        )
    return {}


def weights_entry(name: str, weights: str, *, otherwise_none: bool = False) -> Any:
    """The entry of a model's weights enum. Raises ConfigurationError if it is missing, unless ``otherwise_none``."""
    entries = models.get_model_weights(name)
    entry = weights.rpartition(".")[2]
    if entry not in entries.__members__:
        if otherwise_none:
            return None
        raise ConfigurationError.at(
            "model.pretrained",
            weights,
            f" is neither a local file nor a set of weights for {name}. Allowed: {', '.join(entries.__members__)}, or "
            "a .pt file.",
        )
    return entries[entry]


def _state(entry: Any, weights: str | None) -> dict[str, torch.Tensor]:
    """Torchvision's own weights, downloaded once per machine. ``weights``: the config's value, for the error."""
    try:
        return entry.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError) as error:
        raise ConfigurationError.at(
            "model.pretrained",
            weights,
            f": {entry.url} can't be downloaded ({error}). Download it on a machine with "
            "a network and set model.pretrained=<that file>, or model.pretrained=null.",
        ) from None
