"""Each rank's own parts of the weights as plain tensors, for any optimizer: their gradients, and norms and averages."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.flat_buckets import exchange_gradients
from manyheads.runner.parallel.rank.structure import own_settings, stepped

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor: its shard of a DTensor, else the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def apart(part: Tensor) -> Tensor:
    """The plain tensor in memory of its own, so that it does not keep the complete one of which it may be a view."""
    return part if part.untyped_storage().nbytes() == part.nbytes else part.clone()


def copies(tensor: DTensor) -> int:
    """Number of ranks of a tensor's mesh that hold the same part of it."""
    dimensions = zip(tensor.placements, tensor.device_mesh.shape, strict=True)
    return math.prod(size for placement, size in dimensions if isinstance(placement, Replicate))


@torch.no_grad()
def shared_norm(gradients: Iterable[tuple[Tensor, int]], add_up: Callable[[Tensor], Tensor], device: Any) -> Tensor:
    """The norm of a complete model's gradients, (), the same on each rank; communicates once.

    ``gradients``: this rank's parts, each with the number of ranks that hold it; ``add_up``: sums over all ranks.
    """
    by_copies: dict[int, list[Tensor]] = {}
    for gradient, count in gradients:
        by_copies.setdefault(count, []).append(gradient)
    square = torch.zeros(1, dtype=torch.float64, device=device)
    for count, parts in by_copies.items():
        square += torch.stack(torch._foreach_norm(parts)).double().square().sum() / count
    return add_up(square)[0].sqrt()


def add_up(parameters: Iterable[nn.Parameter], group: Any, *, divisor: int = 1) -> None:
    """Sum the gradients of plain parameters over a group and divide by ``divisor``, as ``exchange_gradients``."""

    def summed(flat: Tensor) -> None:
        dist.all_reduce(flat, group=group)
        if divisor > 1:
            flat /= divisor

    exchange_gradients([*parameters], summed)


def refuse_if_needs_whole_weights(optimizer: Optimizer) -> None:
    """Try an optimizer of this class on a matrix and on its halves. Raises ConfigurationError if the results differ."""
    for part in getattr(optimizer, "parts", {}).values():
        refuse_if_needs_whole_weights(part)
    if hasattr(optimizer, "parts"):
        return
    kind, settings = type(optimizer), own_settings(optimizer)
    device = next((p.device for group in optimizer.param_groups for p in group["params"]), torch.device("cpu"))
    with unset_fake_temporarily():  # the model's weights may be fake; these need values
        matrix = torch.linspace(-1, 2, 16, dtype=torch.float32, device=device).view(4, 4)
        results = [
            torch.cat(stepped(kind, settings, parts, [[_gradient(part, step) for part in parts] for step in range(2)]))
            for parts in ([matrix], [matrix[:2], matrix[2:]])
        ]
        is_alike = torch.allclose(results[0], results[1], rtol=1e-4, atol=1e-6)
    if not is_alike:
        raise ConfigurationError.at(
            "optimizer._target_",
            f"{kind.__module__}.{kind.__qualname__}",
            " uses each weight as a whole (for its norm, for example), but this strategy leaves each rank only a part. "
            "Set optimizer=adamw or sgd, or parallel=ddp or zero1.",
        )


def scale(gradients: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply all gradients in place, those of a dtype at once. ``factor``: (); rounded to their dtype first."""
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        torch._foreach_mul_([gradient for gradient in gradients if gradient.dtype is dtype], factor.to(dtype))


def _gradient(part: Tensor, step: int) -> Tensor:
    """A different gradient for each step, whose halves differ from the whole in norm."""
    return torch.sin(3 * part + step) + part**2


class Gradients:
    """The gradients of ranks that share a model.

    In the ``optimizer``, plain parameters replace the sharded ones, and share their memory. ``whose``: the name of each
    weight of the model.
    """

    def __init__(self, optimizer: Optimizer, whose: Mapping[nn.Parameter, str], ranks: "ModelParallel"):
        self._ranks = ranks
        self._names: dict[nn.Parameter, str] = {}  # of the optimizer's parameters
        self._copies: dict[nn.Parameter, int] = {}  # on how many data-parallel ranks each is the same
        self._sharded: list[tuple[DTensor, nn.Parameter]] = []  # weights with the parameters that replace them
        self._plain: list[nn.Parameter] = []
        for group in optimizer.param_groups:
            for index, weight in enumerate(group["params"]):
                if isinstance(weight, DTensor):
                    part = group["params"][index] = nn.Parameter(local(weight.data))
                    self._sharded.append((weight, part))
                    self._copies[part] = copies(weight)
                else:
                    part = weight
                    self._plain.append(part)
                    self._copies[part] = ranks.sizes.data_size
                self._names[part] = whose[weight]
        self._partial = [part for part, name in self._names.items() if name in ranks.shared.partial]
        self._of_stages = [] if ranks.pipe is None else ranks.pipe.shared(self._names)

    def exchange(self) -> None:
        """Reduce gradients, so that all ranks with the same part of a weight have the same gradient for it."""
        ranks = self._ranks
        for weight, part in self._sharded:
            part.data = local(weight.data)  # the memory may have moved, as in the first forward pass
            if weight.grad is not None:
                part.grad, weight.grad = local(weight.grad), None
        for parameter, group in self._of_stages:  # each stage has only its own contribution
            add_up([parameter], group)
        if self._partial:
            add_up(self._partial, ranks.tensor_group)
        if ranks.data_group is not None and self._plain:
            add_up(self._plain, ranks.data_group, divisor=ranks.data_size)

    def norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        """The norm of all gradients, (), clipped in place to ``limit``; see ``Parallel.gradient_norm``."""
        parts = [(p.grad, self._holders(p)) for p in parameters if p.grad is not None and p.grad.numel()]
        norm = shared_norm(parts, self._ranks.reduce, self._ranks.device)
        if math.isfinite(limit):
            factor = torch.clamp(limit / (norm + 1e-6), max=1.0)  # as in clip_grad_norm_
            scale([gradient for gradient, _ in parts], factor)
        return norm

    def _holders(self, parameter: nn.Parameter) -> int:
        """Number of ranks that hold the same part of this parameter."""
        name, ranks = self._names[parameter], self._ranks
        count = 1 if name in ranks.shared.cuts else ranks.sizes.tensor
        count *= 1 if ranks.pipe is None else len(ranks.pipe.ranks_with(name))
        return count * self._copies[parameter]
