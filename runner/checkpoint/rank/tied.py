"""Tied weights: parameters that a model holds under several names, such as an embedding that is also the head."""

from collections.abc import Iterable

from torch import nn


def names_of(model: nn.Module) -> dict[str, list[str]]:
    """All names of each parameter in the model's state_dict, by the first one, which ``named_parameters`` has."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return {own[0]: own for own in names.values()}


def trained_names(model: nn.Module) -> dict[str, str]:
    """Every name of each trained parameter, with its first one."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: first for first, own in names_of(model).items() if first in trained for name in own}


def tied_to(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """For each parameter that ``names`` lacks, but has under another of its names, that name."""
    known = {*names}
    return {
        missing: present
        for own in names_of(model).values()
        for present in [name for name in own if name in known][:1]
        for missing in own
        if missing not in known
    }
