"""Gives the optimizer each rank's own parts as plain tensors, which every optimizer and fused kernel can update."""

import inspect

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.tensors import copies, local


class OwnParts:
    """Plain parameters that replace an optimizer's sharded ones and share their memory.

    ``parameters``: pairs of each weight and its replacement, which is the weight itself if it is not sharded.
    """

    def __init__(self, optimizer: Optimizer):
        self.parameters: list[tuple[nn.Parameter, nn.Parameter]] = []
        for group in optimizer.param_groups:
            for index, weight in enumerate(group["params"]):
                part = nn.Parameter(local(weight.data)) if isinstance(weight, DTensor) else weight
                group["params"][index] = part
                self.parameters.append((weight, part))
        self._copies = {part: copies(weight) for weight, part in self.parameters}
        self._sharded = [pair for pair in self.parameters if pair[0] is not pair[1]]

    def take_gradients(self) -> None:
        """Move the gradients from the weights to their parts."""
        for weight, part in self._sharded:
            part.data = local(weight.data)  # the memory may have moved, as in the first forward pass
            if weight.grad is not None:
                part.grad, weight.grad = local(weight.grad), None

    def copies(self, part: nn.Parameter) -> int:
        """Number of ranks of its mesh that hold the same part."""
        return self._copies[part]


def refuse_what_wants_whole_weights(optimizer: Optimizer, *, what: str) -> None:
    """Try an optimizer of this class on a matrix and on its halves. Raises ConfigurationError if the results differ.

    ``what``: how the weights are cut, for the error.
    """
    kind = type(optimizer)
    accepted = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    device = next((p.device for group in optimizer.param_groups for p in group["params"]), torch.device("cpu"))
    with unset_fake_temporarily():  # the model's weights may be fake; these need values
        matrix = torch.linspace(-1, 2, 16, dtype=torch.float32, device=device).view(4, 4)
        results = []
        for parts in ([matrix], [matrix[:2], matrix[2:]]):
            parameters = [nn.Parameter(part.clone()) for part in parts]
            made = kind(parameters, **settings)
            for step in range(2):
                for parameter, part in zip(parameters, parts, strict=True):
                    parameter.grad = _gradient(part, step)
                made.step()
            results.append(torch.cat([parameter.detach() for parameter in parameters]))
        is_alike = torch.allclose(results[0], results[1], rtol=1e-4, atol=1e-6)
    if not is_alike:
        raise ConfigurationError.at(
            "optimizer._target_",
            f"{kind.__module__}.{kind.__qualname__}",
            f" uses each weight as a whole (for its norm, "
            f"for example), but {what} leaves each rank only a part. Set optimizer=adamw or sgd, or parallel=ddp or "
            "zero1.",
        )


def _gradient(part: Tensor, step: int) -> Tensor:
    """A different gradient for each step, whose halves have other norms than the whole."""
    return torch.sin(3 * part + step) + part**2
