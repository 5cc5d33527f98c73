"""Weights cut into shards that are put together when they are needed: torch's FSDP2, unit by unit.

Sources: Rajbhandari et al. 2020, stage 3 (https://arxiv.org/abs/1910.02054);
https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.parallel.rank.recompute import recompute
from manyheads.runner.parallel.rank.units import find_units
from manyheads.runner.run.errors import ConfigurationError


@dataclass(frozen=True)
class Sharding:
    """How ``fully_shard`` is called.

    ``units``: as for find_units; ``reshard``: "after_forward" frees a unit's weights between its forward and backward
    pass; ``prefetch``: how many units are gathered ahead, or "auto" for torch's own choice; ``param_dtype``,
    ``reduce_dtype``: in which weights are gathered and gradients reduced, or "none" for their own; ``recompute``:
    activations inside of units are computed again in the backward pass instead of being kept.
    """

    units: str | list[str]
    reshard: str
    prefetch: int | str
    param_dtype: str
    reduce_dtype: str
    recompute: bool

    @property
    def changes_anything(self) -> bool:
        """Whether it has a use without shards, too."""
        return self.recompute or (self.param_dtype, self.reduce_dtype) != ("none", "none")

    def apply(
        self, model: nn.Module, mesh: DeviceMesh, names: list[str], *, holds: Callable[[str], bool] | None = None
    ) -> None:
        """Shard the model in place, over the last dimension of ``mesh``; over the first of two it is replicated.

        ``names``: of the whole model's state; ``holds``: whether this rank alone of its pipeline has a parameter. In a
        pipeline only units of which it has all are sharded, else what is in no unit as well, as one. Raises
        ConfigurationError.
        """
        units = find_units(model, self.units)
        if holds is not None:
            inside = {name: [key for key in names if key.startswith(f"{name}.")] for name in units}
            units = {name: unit for name, unit in units.items() if all(map(holds, inside[name]))}
        self.apply_recompute(units)
        policy = self._policy(is_root=False)
        frees = self.reshard == "after_forward"
        if policy.param_dtype is not None:  # it stays as it is, whatever it is given: its statistics need the digits
            exact = MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=policy.param_dtype)
            for module in [m for m in model.modules() if isinstance(m, _BatchNorm)]:
                _shard(module, "", mesh=mesh, mp_policy=exact, reshard_after_forward=frees)
        for name, unit in units.items():
            _shard(unit, f"{name}.", mesh=mesh, mp_policy=policy, reshard_after_forward=frees)
        if holds is None:
            _shard(model, "", mesh=mesh, mp_policy=self._policy(is_root=True))
        if self.prefetch != "auto":
            self._prefetch([module for name, module in model.named_modules() if name in units])

    def apply_recompute(self, units: dict[str, nn.Module]) -> None:
        if self.recompute:
            recompute(units, key="parallel.recompute=true")

    def _policy(self, *, is_root: bool) -> MixedPrecisionPolicy:
        param, reduce = (
            None if name == "none" else getattr(torch, name) for name in (self.param_dtype, self.reduce_dtype)
        )
        output = torch.float32 if is_root and param is not None else None  # the loss wants the digits
        return MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce, output_dtype=output)

    def _prefetch(self, units: list[Any]) -> None:
        assert isinstance(self.prefetch, int)
        for place, unit in enumerate(units):
            unit.set_modules_to_forward_prefetch(units[place + 1 : place + 1 + self.prefetch])
            unit.set_modules_to_backward_prefetch(units[max(0, place - self.prefetch) : place][::-1])


def set_reduces(model: nn.Module, *, reduces: bool) -> None:
    """Whether the next backward pass reduces gradients; else they are kept, whole, to be added to."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(reduces, recurse=False)


def _shard(module: nn.Module, prefix: str, **options: Any) -> None:
    try:
        fully_shard(module, **options)
    except ValueError as error:
        scalars = [f"{prefix}{name}" for name, parameter in module.named_parameters() if not parameter.ndim]
        if not scalars:
            raise
        raise ConfigurationError(
            f"{scalars[0]} is a single number, which can't be cut into shards ({error}). Give it the shape (1,)."
        ) from None
