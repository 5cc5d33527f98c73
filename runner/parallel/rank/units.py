"""The units of a model: modules that are sharded or recomputed as one, or count as a layer of their own."""

import fnmatch
from collections import Counter
from collections.abc import Sequence

from torch import nn

from manyheads.runner.errors import ConfigurationError

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def find_units(model: nn.Module, wanted: str | Sequence[str], *, key: str) -> dict[str, nn.Module]:
    """The units by name, those inside of others first.

    ``wanted``: names of modules or classes, names with wildcards ("blocks.*"); or "auto": the classes that the model
    itself names in ``_no_split_modules``, as Hugging Face's do, else its repeated blocks. ``key``: of the run config,
    for errors. Raises ConfigurationError.
    """
    if isinstance(wanted, str):
        classes = getattr(model, "_no_split_modules", None)
        units = _of_classes(model, classes) if classes else _repeated(model)
    else:
        units = {name: module for pattern in wanted for name, module in _named(model, pattern, key).items()}
    _refuse_shared_weights(units, key)
    return dict(sorted(units.items(), key=lambda item: -item[0].count(".")))


def listed_units(model: nn.Module, patterns: Sequence[str], *, key: str) -> dict[str, nn.Module]:
    """The units that a list in the trainer's section names; [auto] stands for "auto". Otherwise as ``find_units``.

    Raises ConfigurationError also where "auto" finds none, so that a setting without any effect does not go unnoticed.
    """
    units = find_units(model, "auto" if patterns == ["auto"] else patterns, key=key)
    if not units:
        raise ConfigurationError.at(
            key, ["auto"], ": the model has no repeated blocks. Name some of its modules or classes, or set it to []."
        )
    return units


def _repeated(module: nn.Module, prefix: str = "") -> dict[str, nn.Module]:
    """Siblings of one class that have parameters and parts of their own: a transformer's layers, a ResNet's blocks."""
    children = dict(module.named_children())
    counts = Counter(type(child) for child in children.values() if _is_block(child))
    units: dict[str, nn.Module] = {}
    for name, child in children.items():
        path = f"{prefix}{name}"
        units |= {path: child} if counts[type(child)] > 1 else _repeated(child, f"{path}.")
    return units


def _is_block(module: nn.Module) -> bool:
    has_parts, is_container = any(True for _ in module.children()), type(module) in CONTAINERS
    return has_parts and not is_container and any(True for _ in module.parameters())


def _of_classes(model: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if name and type(module).__name__ in names}


def _named(model: nn.Module, pattern: str, key: str) -> dict[str, nn.Module]:
    modules = {name: module for name, module in model.named_modules() if name}
    matches = {name: module for name, module in modules.items() if fnmatch.fnmatchcase(name, pattern)}
    matches = {name: module for name, module in matches.items() if name.count(".") == pattern.count(".")}
    matches = matches or _of_classes(model, [pattern])
    if not matches:
        kinds = sorted({type(module).__name__ for module in modules.values()})
        raise ConfigurationError(
            f"{key}: the model has no module or class named {pattern}. It has modules such as "
            f"{', '.join([*modules][:8])}, and classes {', '.join(kinds[:12])}.",
            key=key,
        )
    if containers := [name for name, module in matches.items() if isinstance(module, (nn.ModuleList, nn.ModuleDict))]:
        raise ConfigurationError(
            f"{key}: {containers[0]} is only a container of modules. Name its contents: {containers[0]}.*", key=key
        )
    return matches


def _refuse_shared_weights(units: dict[str, nn.Module], key: str) -> None:
    owners: dict[int, str] = {}
    for unit, module in units.items():
        for parameter in module.parameters():
            other = owners.setdefault(id(parameter), unit)
            if other != unit and not unit.startswith(f"{other}.") and not other.startswith(f"{unit}."):
                raise ConfigurationError(
                    f"{key}: {other} and {unit} share a weight, so that they can't be two units. Name a module that "
                    "contains both, or leave one of them out.",
                    key=key,
                )
