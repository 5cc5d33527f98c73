"""Cuts weights into shards that are gathered when they are needed: torch's FSDP2, unit by unit.

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

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.recompute import recompute
from manyheads.runner.parallel.rank.units import find_units


@dataclass(frozen=True)
class Sharding:
    """The settings for ``fully_shard``.

    ``units``: as for find_units; ``reshard``: "after_forward" frees a unit's weights between its forward and backward
    pass; ``prefetch``: number of units gathered ahead, or "auto" for torch's own choice; ``param_dtype``,
    ``reduce_dtype``: the dtype in which weights are gathered and gradients reduced, or "none" for their own;
    ``recompute``: whether activations inside units are recomputed in the backward pass instead of kept; "selective"
    keeps some.
    """

    units: str | list[str]
    reshard: str
    prefetch: int | str
    param_dtype: str
    reduce_dtype: str
    recompute: bool | str

    @property
    def changes_anything(self) -> bool:
        """Whether the settings have an effect on a single shard, too."""
        return bool(self.recompute) or (self.param_dtype, self.reduce_dtype) != ("none", "none")

    def apply(
        self, model: nn.Module, mesh: DeviceMesh, names: list[str], *, holds: Callable[[str], bool] | None = None
    ) -> None:
        """Shard the model in place over the last dimension of ``mesh``; replicate it over the first of two.

        ``names``: those of the complete model's state; ``holds``: whether only this rank of its pipeline has a
        parameter, None without a pipeline. In a pipeline, only the units that this rank has completely are sharded;
        without one, the parameters outside of units are sharded too, as one unit. Raises ConfigurationError for unknown
        units, or for a parameter without dimensions.
        """
        units = find_units(model, self.units, key="parallel.units")
        if holds is not None:
            inside = {name: [key for key in names if key.startswith(f"{name}.")] for name in units}
            units = {name: unit for name, unit in units.items() if all(map(holds, inside[name]))}
        if self.recompute:
            recompute(units, self.recompute, key="parallel.recompute")
        policy = self._policy(is_root=False)
        frees = self.reshard == "after_forward"
        if policy.param_dtype is not None:  # batch norm stays in fp32, which its statistics need
            exact = MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=policy.param_dtype)
            for module in [m for m in model.modules() if isinstance(m, _BatchNorm)]:
                _shard(module, "", mesh=mesh, mp_policy=exact, reshard_after_forward=frees)
        for name, unit in units.items():
            _shard(unit, f"{name}.", mesh=mesh, mp_policy=policy, reshard_after_forward=frees)
        if holds is None:
            _shard(model, "", mesh=mesh, mp_policy=self._policy(is_root=True))
        if self.prefetch != "auto":
            self._prefetch([module for name, module in model.named_modules() if name in units])

    def _policy(self, *, is_root: bool) -> MixedPrecisionPolicy:
        param, reduce = (
            None if name == "none" else getattr(torch, name) for name in (self.param_dtype, self.reduce_dtype)
        )
        output = torch.float32 if is_root and param is not None else None  # the loss needs the precision
        return MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce, output_dtype=output)

    def _prefetch(self, units: list[Any]) -> None:
        assert isinstance(self.prefetch, int)
        for number, unit in enumerate(units):
            unit.set_modules_to_forward_prefetch(units[number + 1 : number + 1 + self.prefetch])
            unit.set_modules_to_backward_prefetch(units[max(0, number - self.prefetch) : number][::-1])


def set_reduces(model: nn.Module, *, reduces: bool) -> None:
    """Set whether the next backward pass reduces gradients; else they accumulate unsharded."""
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
