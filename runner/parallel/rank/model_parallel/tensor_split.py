"""Splits a model's layers over a tensor-parallel group according to a plan."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Cut
from manyheads.runner.parallel.rank.model_parallel.tensor_layers import (
    ColumnConv2d,
    ColumnLinear,
    Entrance,
    RowConv2d,
    RowLinear,
    SplitAttention,
)
from manyheads.runner.parallel.rank.model_parallel.tensor_plan import Plan

HEADS = ("heads", "num_heads", "num_attention_heads", "num_key_value_heads", "n_head", "n_heads")
KINDS: dict[str, tuple[dict[type, type], dict[str, Cut]]] = {  # by style: the split classes, and how weights are cut
    "colwise": ({nn.Linear: ColumnLinear, nn.Conv2d: ColumnConv2d}, {"weight": Cut(0), "bias": Cut(0)}),
    "rowwise": ({nn.Linear: RowLinear, nn.Conv2d: RowConv2d}, {"weight": Cut(1)}),
    "attention": (
        {nn.MultiheadAttention: SplitAttention},
        {"in_proj_weight": Cut(0, 3), "in_proj_bias": Cut(0, 3), "out_proj.weight": Cut(1)},
    ),
}


def split(model: nn.Module, plan: Plan, group: Any, *, rank: int, size: int) -> dict[str, Cut]:
    """Replace each planned layer by this rank's part of it; return how parameters were cut, by name.

    Raises ConfigurationError if a layer cannot be divided among ``size`` ranks.
    """
    modules, cuts = dict(model.named_modules()), {}
    names = defaultdict[int, list[str]](list)  # of each parameter
    entrances: dict[str, Entrance] = {}  # by the name of the module whose layers share one
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    for name, style in plan.items():
        _refuse_uneven_heads(name, modules, size)
        kinds, inner_cuts = KINDS[style]
        for path, cut in inner_cuts.items():
            holder, _, attribute = path.rpartition(".")
            module, full = modules[f"{name}.{holder}" if holder else name], f"{name}.{path}"
            parameter = getattr(module, attribute)
            if parameter is None:
                continue
            if others := [other for other in names[id(parameter)] if other != full]:
                rest = f": {full} is also {others[0]}, and can be split only once. Leave {name} out of parallel.plan."
                raise ConfigurationError.at("parallel", "tensor", rest)
            if parameter.shape[cut.dim] % (cut.blocks * size):
                rest = f" has {parameter.shape[cut.dim] // cut.blocks} parts for {size} ranks, and cannot be divided "
                rest += "evenly. Set the tensor size to a number that divides it."
                raise ConfigurationError.at("parallel", "tensor", f": {full}{rest}")
            part = nn.Parameter(cut.part(parameter.detach(), rank, size), requires_grad=parameter.requires_grad)
            setattr(module, attribute, part)
            cuts[full] = cut
        modules[name].__class__ = next(kinds[base] for base in kinds if isinstance(modules[name], base))
        modules[name].group = group
        if style == "colwise":
            parent = name.rpartition(".")[0]
            if parent not in entrances:
                entrances[parent] = Entrance(modules[parent], group)
            modules[name].entrance = entrances[parent]
        if style == "attention":
            modules[name]._qkv_same_embed_dim = False  # or torch's encoder bypasses it
    return cuts


def _refuse_uneven_heads(name: str, modules: Mapping[str, nn.Module], size: int) -> None:
    parent = modules[name.rpartition(".")[0]]
    for owner in (modules[name], parent, getattr(parent, "config", None)):
        for key in HEADS:
            heads = getattr(owner, key, None)
            if isinstance(heads, int) and heads % size:
                fitting = [str(count) for count in range(2, heads + 1) if heads % count == 0]
                raise ConfigurationError.at(
                    "parallel",
                    "tensor",
                    f": {name} has {heads} {key}, which can't be divided among {size} ranks. Numbers "
                    f"of ranks that work: {', '.join(fitting) or 'only one'}.",
                )
