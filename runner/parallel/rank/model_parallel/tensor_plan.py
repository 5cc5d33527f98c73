"""Finds which layers of a model to split and how: from the config, from the model itself, or from their shapes."""

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.units import find_units

Plan = dict[str, str]  # by a module's name, one of STYLES
SCATTERED = "scattered"  # the inputs and outputs can be pieces of sequences: see sequence.py
STYLES = ("colwise", "rowwise", "attention", SCATTERED)
BY_CHANNEL = (
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Hardswish, nn.Identity, nn.Dropout),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
)


def find_plan(model: nn.Module, wanted: str | Mapping[str, str]) -> Plan:
    """The plan for a model: the style of each split layer, by its full name, in the model's order.

    ``wanted``: the style of each module, by names that may have wildcards; or "auto": the model's own plan in its
    attribute ``tensor_parallel_plan``, or ``_tp_plan`` as in Hugging Face models, else one found from the layers'
    shapes. Raises ConfigurationError if nothing can be split.
    """
    layers = ({name: style for name, style in plan.items() if style != SCATTERED} for plan in _declared(model, wanted))
    plan = next(filter(None, layers), None) or _found(model)
    if not plan:
        kinds = sorted(
            {type(module).__name__ for module in model.modules() if any(True for _ in module.parameters(False))}
        )
        raise ConfigurationError(
            f"{type(model).__name__} has no layers that parallel=tensor can split: it looks for "
            "nn.MultiheadAttention, nn.Linear layers whose outputs feed another one, and neighbours in an "
            f"nn.Sequential; it found only {', '.join(kinds)}. Name layers in parallel.plan={{name: colwise, other: "
            f"rowwise}}, or set parallel=fsdp."
        )
    return plan


def find_scattered(model: nn.Module, wanted: str | Mapping[str, str], plan: Plan) -> list[str]:
    """Modules whose inputs and outputs can be pieces of sequences, in the model's order; ``plan``: from ``find_plan``.

    These are the modules of style "scattered" in the config or the model's own plan, else the repeated blocks that
    contain planned layers. This is a guess that has to be verified.
    """
    declared = ([name for name, style in plan.items() if style == SCATTERED] for plan in _declared(model, wanted))
    if (names := next(filter(None, declared), None)) is not None:
        return names
    units = [
        unit for unit in find_units(model, "auto", key="parallel.plan") if any(_is_in(name, [unit]) for name in plan)
    ]
    return [name for name, _ in model.named_modules() if name in units and not _is_in(name.rpartition(".")[0], units)]


def _is_in(name: str, units: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{unit}.") for unit in units)


def _declared(model: nn.Module, wanted: str | Mapping[str, str]) -> Iterator[Plan]:
    """The plans of the config and of the model itself, if they exist."""
    if not isinstance(wanted, str):
        yield _by_patterns(model, wanted, "parallel.plan")
    if declared := getattr(model, "tensor_parallel_plan", None) or getattr(model, "_tp_plan", None):
        yield _by_patterns(model, declared, f"the plan of {type(model).__name__}")


def _by_patterns(model: nn.Module, patterns: Mapping[str, str], whose: str) -> Plan:
    modules = dict(model.named_modules())
    plan: Plan = {}
    for pattern, style in patterns.items():
        if style not in STYLES:
            message = f"{whose}: {pattern} has the style {style!r}. Allowed: {', '.join(STYLES)}."
            raise ConfigurationError(message, key="parallel.plan", value=style, allowed=STYLES)
        names = [
            name for name in modules if fnmatch.fnmatchcase(name, pattern) and name.count(".") == pattern.count(".")
        ]
        if not names:
            raise ConfigurationError(
                f"{whose}: the model has no module {pattern}. It has {', '.join([n for n in modules if n][:8])}, ...",
                key="parallel.plan",
                value=pattern,
            )
        plan |= dict.fromkeys(names, style)
    for name, style in plan.items():
        if style == SCATTERED:
            continue
        module = modules[name]
        fits = isinstance(module, nn.MultiheadAttention) if style == "attention" else _is_layer(module)
        if not fits:
            allowed = "nn.MultiheadAttention" if style == "attention" else "nn.Linear, or nn.Conv2d without groups,"
            raise ConfigurationError(
                f"{whose}: {name} is of class {type(module).__name__}; only {allowed} can be {style}. Leave it out.",
                key="parallel.plan",
                value=name,
            )
    return {name: plan[name] for name in modules if name in plan}


def _found(model: nn.Module) -> Plan:
    """A plan from the layers' shapes. This is a guess that has to be verified.

    It takes nn.MultiheadAttention; adjacent layers of an nn.Sequential; and of sibling nn.Linear layers those that map
    a features to b, with the last one that maps b back to a.
    """
    plan: Plan = {}
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, nn.MultiheadAttention):
            if module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn:
                plan[name] = "attention"
            continue
        if isinstance(module, nn.Sequential):
            plan |= _of_sequence(module, prefix)
            continue
        linears = [(child, layer) for child, layer in module.named_children() if type(layer) is nn.Linear]
        if len(linears) < 2:
            continue
        *first, (last_name, last) = linears
        if all((layer.in_features, layer.out_features) == (last.out_features, last.in_features) for _, layer in first):
            plan |= {f"{prefix}{child}": "colwise" for child, _ in first} | {f"{prefix}{last_name}": "rowwise"}
    return plan


def _of_sequence(sequence: nn.Sequential, prefix: str) -> Plan:
    """Pairs of layers with nothing between them that mixes channels, from the end, where layers tend to be larger."""
    plan: Plan = {}
    last: tuple[str, Any] | None = None
    children: list[tuple[str, Any]] = [*sequence.named_children()]
    for name, module in reversed(children):
        if _is_layer(module):
            # The outputs of one are the inputs of the other: the first two dimensions of weights, of both kinds.
            if last is not None and type(last[1]) is type(module) and len(module.weight) == last[1].weight.shape[1]:
                plan |= {f"{prefix}{name}": "colwise", f"{prefix}{last[0]}": "rowwise"}
                last = None
            else:
                last = name, module
        elif not isinstance(module, BY_CHANNEL):
            last = None
    return plan


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
