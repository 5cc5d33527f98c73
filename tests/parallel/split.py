"""A strategy that stands for all that share a model between ranks, and a model for it; named by ``_target_``.

Ranks 0 and 1 hold a half each of the weights and work on the same samples; so do ranks 2 and 3, on others.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult
from manyheads.runner.parallel.rank.process_group import ProcessGroup
from manyheads.runner.parallel.rank.tensor_layout import TensorLayout

HALVES = {"up.weight": 0, "up.bias": 0, "down.weight": 1}  # what is split, and along which dimension


class Perceptron(nn.Module):
    """Two layers. ``down`` sees all of what ``up`` gives, wherever that was computed."""

    def __init__(self, *, num_classes: int, width: int = 8):
        super().__init__()
        self.up, self.down = nn.Linear(192, width), nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(images.flatten(1))))


class Summed(torch.autograd.Function):
    """The sum over a group's ranks, each of which goes on with all of it."""

    @staticmethod
    def forward(context: Any, part: Tensor, group: Any) -> Tensor:
        whole = part.clone()
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Joined(nn.Linear):
    """A layer that has a part of its inputs only, and communicates to know the rest."""

    group: Any

    def forward(self, inputs: Tensor) -> Tensor:
        assert self.bias is not None
        return Summed.apply(inputs @ self.weight.T, self.group) + self.bias


class Split(ProcessGroup):
    """Owns the order of passes, the gradients' norm, evaluation and state. ddp's options are of no use to it."""

    evaluates_together = True

    def __init__(self, *, timeout: float, rank: int, local_rank: int, world_size: int, device_type: str, **_: Any):
        place: dict[str, Any] = {"local_rank": local_rank, "world_size": world_size, "device_type": device_type}
        super().__init__(timeout=timeout, backend="gloo", rank=rank, **place)
        self.half = rank % 2
        self.data_rank, self.data_size, self.counts_samples = rank // 2, world_size // 2, self.half == 0

    def join(self) -> None:
        super().join()
        pairs = [[rank, rank + 1] for rank in range(0, self.world_size, 2)]
        self.pair = [dist.new_group(ranks) for ranks in pairs][self.data_rank]
        self.alike = [dist.new_group(list(range(half, self.world_size, 2))) for half in (0, 1)][self.half]

    def place(self, model: nn.Module) -> nn.Module:
        assert isinstance(model, Perceptron)
        model.down.__class__ = Joined
        model.down.group = self.pair  # type: ignore[assignment]
        parameters = dict(model.named_parameters())
        self.layout = Halves(self.half, self.pair, [*parameters])
        for name, part in self.layout.split({name: p.data for name, p in parameters.items()}).items():
            parameters[name].data = part
        self.parameters = parameters
        return super().place(model)

    # -- one update ----------------------------------------------------------------------------------

    def compute_gradients(self, batches: list[Any], step: ForwardBackward) -> list[ForwardResult]:
        passes = []
        for batch in reversed(batches):  # an order of its own
            objective, passed = step.objective(self.model(batch.inputs), batch)
            objective.backward()
            passes.append(passed)
        for parameter in self.parameters.values():
            dist.all_reduce(parameter.grad, group=self.alike)
            parameter.grad /= self.data_size
        return passes[::-1]

    def wrap_model(self, model: nn.Module) -> nn.Module:
        self.model = model
        return model

    def gradient_norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        squares = {name: p.grad.square().sum() for name, p in self.parameters.items() if p.grad is not None}
        split = sum(square for name, square in squares.items() if name in HALVES)
        dist.all_reduce(split, group=self.pair)
        norm = (split + sum(square for name, square in squares.items() if name not in HALVES)).sqrt()
        for parameter in parameters:
            parameter.grad *= torch.clamp(limit / (norm + 1e-6), max=1.0)  # as torch has it
        return norm


class Halves(TensorLayout):
    """Each rank of a ``pair`` has one half of some weights. ``names``: of all weights, in order."""

    def __init__(self, half: int, pair: Any, names: list[str]):
        self.half, self.pair, self.names = half, pair, names

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._whole(name, tensor) for name, tensor in tensors.items()}

    def split(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._part(name, tensor) for name, tensor in tensors.items()}

    def gather_optimizer(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return self._each(optimizer.state_dict(), self._whole)

    def split_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._each(state, self._part)

    def _each(self, state: dict[str, Any], change: Any) -> dict[str, Any]:
        of_parameters = {
            index: {
                key: change(self.names[index], value) if torch.is_tensor(value) else value for key, value in own.items()
            }
            for index, own in state["state"].items()
        }
        return {**state, "state": of_parameters}

    def _whole(self, name: str, part: Tensor) -> Tensor:
        if name not in HALVES:
            return part
        parts = [torch.empty_like(part) for _ in range(2)]
        dist.all_gather(parts, part.detach().contiguous(), group=self.pair)
        return torch.cat(parts, dim=HALVES[name])

    def _part(self, name: str, whole: Tensor) -> Tensor:
        return whole.chunk(2, dim=HALVES[name])[self.half].clone() if name in HALVES else whole
