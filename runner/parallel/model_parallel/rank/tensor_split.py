"""Splitting a model's layers over a tensor group by a plan, and the proof that it still computes the same."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from manyheads.runner.parallel.model_parallel.rank.state import Cut
from manyheads.runner.parallel.model_parallel.rank.tensor_layers import (
    ColumnConv2d,
    ColumnLinear,
    RowConv2d,
    RowLinear,
    SplitAttention,
)
from manyheads.runner.parallel.model_parallel.rank.tensor_plan import Plan
from manyheads.runner.parallel.rank.structure import call, map_tensors, tensors_in
from manyheads.runner.run.errors import ConfigurationError

HEADS = ("heads", "num_heads", "num_attention_heads", "num_key_value_heads", "n_head", "n_heads")
KINDS: dict[str, tuple[dict[type, type], dict[str, Cut]]] = {  # what becomes what, and how its weights are cut
    "colwise": ({nn.Linear: ColumnLinear, nn.Conv2d: ColumnConv2d}, {"weight": Cut(0), "bias": Cut(0)}),
    "rowwise": ({nn.Linear: RowLinear, nn.Conv2d: RowConv2d}, {"weight": Cut(1)}),
    "attention": (
        {nn.MultiheadAttention: SplitAttention},
        {"in_proj_weight": Cut(0, 3), "in_proj_bias": Cut(0, 3), "out_proj.weight": Cut(1)},
    ),
}
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}  # of the largest output; a wrong plan is off by its whole size
LOOSE = 5e-2  # for half precision, and where two kinds of devices are compared
SAMPLES = 2


def split(model: nn.Module, plan: Plan, group: Any, *, rank: int, size: int) -> dict[str, Cut]:
    """Leave this rank's part of each planned layer in its place; returns what was cut, by names of parameters."""
    modules, cuts = dict(model.named_modules()), {}
    owners: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), name)
    for name, style in plan.items():
        _refuse_uneven_heads(name, modules, size)
        kinds, own = KINDS[style]
        for each, cut in own.items():
            holder, _, attribute = each.rpartition(".")
            module, full = modules[f"{name}.{holder}" if holder else name], f"{name}.{each}"
            parameter = getattr(module, attribute)
            if parameter is None:
                continue
            if (other := owners[id(parameter)]) != full or _count(model, parameter) > 1:
                raise ConfigurationError(
                    f"parallel=tensor: {full} is also {other}, and can be split only once. Leave {name} out of "
                    "parallel.plan."
                )
            if parameter.shape[cut.dim] % (cut.blocks * size):
                raise ConfigurationError(
                    f"parallel=tensor: {full} has {parameter.shape[cut.dim] // cut.blocks} parts for {size} ranks, "
                    "and cannot be divided evenly. Set the tensor size to a number that divides it."
                )
            part = nn.Parameter(cut.part(parameter.detach(), rank, size), requires_grad=parameter.requires_grad)
            setattr(module, attribute, part)
            cuts[full] = cut
        modules[name].__class__ = next(kinds[base] for base in kinds if isinstance(modules[name], base))
        modules[name].group = group
        if style == "attention":
            modules[name]._qkv_same_embed_dim = False  # or torch's encoder bypasses it
    return cuts


def _count(model: nn.Module, parameter: nn.Parameter) -> int:
    return sum(each is parameter for _, each in model.named_parameters(remove_duplicate=False))


def _refuse_uneven_heads(name: str, modules: Mapping[str, nn.Module], size: int) -> None:
    parent = modules[name.rpartition(".")[0]]
    for owner in (modules[name], parent, getattr(parent, "config", None)):
        for key in HEADS:
            heads = getattr(owner, key, None)
            if isinstance(heads, int) and heads % size:
                fitting = [str(count) for count in range(2, heads + 1) if heads % count == 0]
                raise ConfigurationError(
                    f"parallel=tensor: {name} has {heads} {key}, which can't be divided among {size} ranks. Numbers "
                    f"of ranks that work: {', '.join(fitting) or 'only one'}."
                )


class Checked:
    """Compares what a model gives before and after it is split, on the first samples of ``inputs``."""

    def __init__(self, model: nn.Module, plan: Plan, inputs: Any, *, device: torch.device):
        self._model, self._device = model, device
        parents = list(dict.fromkeys(name.rpartition(".")[0] for name in plan))
        self._parents = [name for name in parents if name] + [""]
        self._inputs = map_tensors(lambda tensor: tensor[:SAMPLES].cpu(), inputs)
        self._entered = ""
        try:
            self._plain: dict[str, Tensor] | None = self._outputs(self._inputs)
        except Exception:  # as it will again when training begins, where the error is explained
            self._plain = None

    def compare(self) -> None:
        """The model is split now. Raises ConfigurationError with the module that computes something else."""
        if self._plain is None:
            return
        advice = "Name the right layers in parallel.plan={name: colwise, other: rowwise}, or set parallel=fsdp."
        try:
            found = self._outputs(map_tensors(lambda tensor: tensor.to(self._device), self._inputs))
        except Exception as error:
            raise ConfigurationError(
                f"parallel=tensor: {self._entered or 'the model'} cannot be called when its layers are split: "
                f"{str(error).splitlines()[0]}. {advice}"
            ) from error
        for name, before in self._plain.items():
            after = found[name].cpu()
            loose = self._device.type != "cpu" or before.dtype not in TOLERANCES
            allowed = LOOSE if loose else TOLERANCES[before.dtype]
            if before.shape != after.shape or not _is_close(before, after, allowed):
                raise ConfigurationError(
                    f"parallel=tensor: {name or 'the model'} computes a different result when its layers are split: "
                    f"the code between them needs whole tensors. {advice}"
                )

    def _outputs(self, inputs: Any) -> dict[str, Tensor]:
        """By parent's name, in the order in which they are done."""
        found: dict[str, Tensor] = {}
        modules = dict(self._model.named_modules())
        handles = []
        for name in self._parents:
            handles.append(modules[name].register_forward_pre_hook(self._enter(name)))
            handles.append(modules[name].register_forward_hook(self._keep(name, found)))
        try:
            with _evaluating(self._model):
                call(self._model, inputs)
        finally:
            for handle in handles:
                handle.remove()
        return found

    def _enter(self, name: str) -> Callable[..., None]:
        return lambda *_: setattr(self, "_entered", name or self._entered)

    def _keep(self, name: str, found: dict[str, Tensor]) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            first = next(tensors_in(output), None)
            if first is not None and first.is_floating_point():
                found.setdefault(name, first.detach().clone())

        return keep


def _is_close(before: Tensor, after: Tensor, allowed: float) -> bool:
    if isinstance(before, FakeTensor):  # of which only the shape is known
        return True
    return bool((before - after).abs().max() <= allowed * before.abs().max())


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients, dropout, or a trace in the model and its random numbers."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
