"""model=timm: the image models of timm, over a thousand of them.

Source: https://huggingface.co/docs/timm/reference/models.
"""

from typing import Any

import timm
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.wording import first_line, nearest


def timm_model(
    *,
    name: str,
    num_classes: int,
    image_size: int | None,
    pretrained: bool | str = False,
    drop_rate: float | None = None,
    drop_path_rate: float | None = None,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """Build a timm model by its name, for images of ``image_size`` pixels per side if it is built for a fixed size.

    ``pretrained``: whether to load timm's weights, or which: the tag after the dot of their name, such as "a1_in1k".
    ``drop_rate``, ``drop_path_rate``: dropout before the classifier and stochastic depth, None for the model's default.
    ``options``: further arguments of its class. Raises ConfigurationError.
    """
    if not timm.is_model(name):
        raise _unknown(name)
    full = f"{name.partition('.')[0]}.{pretrained}" if isinstance(pretrained, str) else name
    given: dict[str, Any] = {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate}
    arguments = {key: value for key, value in given.items() if value is not None} | (options or {})
    config = timm.get_pretrained_cfg(full, allow_unregistered=True)
    if image_size is not None and config is not None and config.fixed_input_size:
        arguments.setdefault("img_size", image_size)
    try:
        model: nn.Module = timm.create_model(full, pretrained=bool(pretrained), num_classes=num_classes, **arguments)
    except TypeError as error:  # raised by its class, names the argument
        raise ConfigurationError.at("model.name", name, f": {error}. Set that key to null, or leave it out.") from error
    except (AssertionError, ValueError) as error:
        raise ConfigurationError.at(
            "model.name", name, f" cannot be built for data.image_size={image_size}: {error}"
        ) from None
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise ConfigurationError.at(
            "model.pretrained",
            pretrained,
            f": timm's weights for {full} cannot be loaded ({first_line(error)}). Download them on a machine with a "
            "network and set model.pretrained=<that file>, or model.pretrained=null.",
        ) from error
    if pretrained:
        source: Any = model.pretrained_cfg
        model.began_with = f"timm's {source['architecture']}.{source['tag']}"  # type: ignore[assignment]
    return model


def _unknown(name: str) -> ConfigurationError:
    return ConfigurationError.at(
        "model.name",
        name,
        f": timm {timm.__version__} has no such model.{nearest(name, timm.list_models())} "
        f"timm.list_models('{name[:4]}*') lists them.",
    )
