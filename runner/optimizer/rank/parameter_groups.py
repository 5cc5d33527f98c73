"""Groups of parameters with settings of their own, by patterns of names: weight decay, layer-wise learning rates.

Sources: no decay of norms and biases, He et al. 2018 (https://arxiv.org/abs/1812.01187); layer-wise learning rate
decay, Clark et al. 2020 (https://arxiv.org/abs/2003.10555), Bao et al. 2021 (https://arxiv.org/abs/2106.08254).
"""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from manyheads.runner.checkpoint.rank.tied import trained_names
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.sections import ParametersSection
from manyheads.runner.parallel.rank.units import find_units
from manyheads.runner.wording import nearest

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
Settings = tuple[tuple[str, Any], ...]  # those that differ from the optimizer's own, sorted


class ParameterGroup(NamedTuple):
    """Names of parameters, and their settings that differ from the optimizer's own; ``lr`` as ``lr_factor``."""

    settings: dict[str, Any]
    names: list[str]


def find_groups(model: nn.Module, section: ParametersSection, *, lr: float) -> list[ParameterGroup]:
    """Divide a complete model into groups as the config's section ``parameters`` says.

    The group with the optimizer's own settings comes first. lr: ``optimizer.lr``. If several entries of ``groups`` name
    a parameter, the first one counts; it takes precedence over the keys for norms, biases and layers. Raises
    ConfigurationError.
    """
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    by_name: dict[str, dict[str, Any]] = {name: {} for name in trained}
    if (decay := section.bias_weight_decay) is not None:
        for name in trained:
            if name.rpartition(".")[2] == "bias":
                by_name[name]["weight_decay"] = decay
    if (decay := section.norm_weight_decay) is not None:
        for name in _of_norms(model) & by_name.keys():
            by_name[name]["weight_decay"] = decay
    if (decay := section.layer_decay) is not None:
        above = heights(model)
        for name in trained:
            by_name[name]["lr_factor"] = decay ** above[name]
    for name, settings in _named(section.groups, trained_names(model), lr=lr).items():
        by_name[name] |= settings
    return _grouped(by_name)


def _of_norms(model: nn.Module) -> set[str]:
    """The names of the parameters that normalization layers own directly."""
    norms = ((path, module) for path, module in model.named_modules() if _is_norm(module))
    return {
        f"{path}.{name}".lstrip(".") for path, module in norms for name, _ in module.named_parameters(recurse=False)
    }


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, NORMS) or type(module).__name__.endswith("Norm")


def _named(entries: Iterable[Mapping[str, Any]], names: Mapping[str, str], *, lr: float) -> dict[str, dict[str, Any]]:
    """The settings of each parameter that an entry of ``parameters.groups`` names, by any of its ``names``."""
    by_name: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(entries):
        settings = {key: value for key, value in entry.items() if key != "match"}
        if "lr" in settings:
            settings["lr_factor"] = settings.pop("lr") / lr
        patterns = [entry["match"]] if isinstance(entry["match"], str) else entry["match"]
        for pattern in patterns:
            for name in matching(pattern, names, key=f"parameters.groups.{number}.match"):
                by_name.setdefault(names[name], settings)
    return by_name


def _grouped(by_name: dict[str, dict[str, Any]]) -> list[ParameterGroup]:
    groups: dict[Settings, list[str]] = {}
    for name, settings in by_name.items():
        kept = {key: value for key, value in settings.items() if (key, value) != ("lr_factor", 1)}
        groups.setdefault(tuple(sorted(kept.items())), []).append(name)
    # The recorded learning rate is the first group's.
    ordered = sorted(groups.items(), key=lambda item: (dict(item[0]).get("lr_factor", 1) != 1, len(item[0])))
    return [ParameterGroup(dict(settings), names) for settings, names in ordered]


def refuse_unknown(groups: Iterable[ParameterGroup], options: Iterable[str], target: str) -> None:
    """Raises ConfigurationError for a setting that the optimizer does not have."""
    allowed = {*options, "lr_factor"}
    for group in groups:
        if unknown := sorted(group.settings.keys() - allowed):
            raise ConfigurationError(
                f"parameters: optimizer._target_={target} has no setting {unknown[0]}. Allowed in groups: match, "
                f"lr_factor, {', '.join(sorted(options))}.",
                key="parameters",
            )


def heights(model: nn.Module) -> dict[str, int]:
    """Number of layers above each parameter, by name; 0 for the head's.

    Layers are the model's repeated blocks, or those of the classes in its ``_no_split_modules``. Modules before the
    first block form another layer, modules after the last one the head, and modules between two blocks belong to the
    earlier one. Raises ConfigurationError for a model without such blocks.
    """
    units = set(find_units(model, "auto", key="parameters.layer_decay"))
    names = [name for name, _ in model.named_parameters()]
    owner = {name: next((unit for unit in units if name.startswith(f"{unit}.")), None) for name in names}
    inside = [index for index, name in enumerate(names) if owner[name] is not None]
    if not inside:
        raise ConfigurationError(
            f"parameters.layer_decay: {type(model).__name__} has no repeated blocks to count as layers. Set it to "
            "null, and set learning rates with parameters.groups.",
            key="parameters.layer_decay",
        )
    begun: list[str | None] = []
    depth = {}
    for index, name in enumerate(names):
        if owner[name] is not None and owner[name] not in begun:
            begun.append(owner[name])
        depth[name] = len(begun) + (index > inside[-1])
    deepest = len(begun) + 1
    return {name: deepest - level for name, level in depth.items()}


SHOWN = 6


def matching(pattern: str, names: Iterable[str], *, key: str) -> list[str]:
    """The names that match the pattern: a parameter, or all parameters in a module; "*" matches anything.

    key: of the run config, for the error. Raises ConfigurationError if no name matches.
    """
    parameters = list(names)
    matches = [name for name in parameters if means(pattern, name)]
    if not matches:
        modules = {prefix for name in parameters for prefix in _prefixes(name)}
        tops = list(dict.fromkeys(name.partition(".")[0] for name in parameters))
        raise ConfigurationError(
            f"{key}: no parameter of the model is named {pattern}.{nearest(pattern, [*modules, *parameters])} "
            f"It begins with {', '.join(tops[:SHOWN])}{', ...' * (len(tops) > SHOWN)}.",
            key=key,
        )
    return matches


def means(pattern: str, name: str) -> bool:
    """Whether a pattern names this parameter, or a module that it is in."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
