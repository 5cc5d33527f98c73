"""Tied weights: parameters that a model holds under several names, such as an embedding that is also the head."""

from collections.abc import Container, Iterator

from torch import nn


def names_of(model: nn.Module) -> dict[str, list[str]]:
    """All names of each parameter in the model's state_dict, by the first one, which ``named_parameters`` has."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return {aliases[0]: aliases for aliases in names.values()}


def trained_names(model: nn.Module) -> dict[str, str]:
    """Every name of each trained parameter, with its first one."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: first for first, aliases in names_of(model).items() if first in trained for name in aliases}


def stored(model: nn.Module, names: Container[str]) -> Iterator[tuple[list[str], list[str]]]:
    """For each parameter that ``names`` has, those of its names that are among them, and those that are not."""
    for aliases in names_of(model).values():
        if present := [name for name in aliases if name in names]:
            yield present, [name for name in aliases if name not in names]
