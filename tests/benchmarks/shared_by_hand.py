"""A GPT shared by two ranks as a script of one's own has it, with torch's own means: one class for each strategy."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, linear
from torch.nn.parallel import DistributedDataParallel

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.model.rank.gpt import GPT

RANKS, MICRO_BATCHES, LR = 2, 4, 1e-4


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The one of conf/optimizer. DTensors and plain tensors cannot be in one call of its fused kernel."""
    by_kind: dict[bool, list[nn.Parameter]] = {}
    for parameter in parameters:
        by_kind.setdefault(isinstance(parameter, DTensor), []).append(parameter)
    return torch.optim.AdamW([{"params": group} for group in by_kind.values()], lr=LR, fused=True)


def loss_of(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs.flatten(0, 1), labels.flatten())


class ByHand:
    """The loop of a tutorial, without metrics."""

    micro_batches = 1

    def __init__(self, model: GPT, rank: int):
        self.model, self.optimizer = self.shared(model, rank)

    def shared(self, model: GPT, rank: int) -> tuple[nn.Module, Any]:
        """The model as it is divided among the ranks, with its optimizer."""
        raise NotImplementedError

    def update(self, batches: list[Batch]) -> Tensor | None:
        """Its loss, where this rank has it."""
        (batch,) = batches
        self.optimizer.zero_grad()
        loss = loss_of(self.model(batch.inputs), batch.content[1])
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class TensorByHand(ByHand):
    def shared(self, model: GPT, rank: int) -> tuple[nn.Module, Any]:
        parallelize_module(model, init_device_mesh("cpu", (RANKS,)), self.plan(len(model.blocks)))
        return model, adamw(model.parameters())

    def plan(self, depth: int, **rowwise: Any) -> dict[str, Any]:
        styles: dict[str, Any] = {
            "attention.query": ColwiseParallel,
            "attention.key": ColwiseParallel,
            "attention.value": ColwiseParallel,
            "attention.output": partial(RowwiseParallel, **rowwise),
            "feed_forward.up": ColwiseParallel,
            "feed_forward.down": partial(RowwiseParallel, **rowwise),
        }
        return {f"blocks.{number}.{name}": style() for number in range(depth) for name, style in styles.items()}


class SequenceByHand(TensorByHand):
    """The same, with norms and the residual stream on pieces of the sequences."""

    def shared(self, model: GPT, rank: int) -> tuple[nn.Module, Any]:
        mesh = init_device_mesh("cpu", (RANKS,))
        divided = super().shared(model, rank)

        def cut(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            return DTensor.from_local(output, mesh, [Replicate()]).redistribute(placements=[Shard(1)]).to_local()

        def join(module: nn.Module, args: Any, output: DTensor) -> Tensor:
            return output.redistribute(placements=[Replicate()]).to_local()

        model.embedding.register_forward_hook(cut)
        model.norm.register_forward_hook(join)
        return divided

    def plan(self, depth: int, **rowwise: Any) -> dict[str, Any]:
        plan = super().plan(depth, output_layouts=Shard(1))
        for number in range(depth):
            for name in ("attention", "feed_forward"):
                plan[f"blocks.{number}.{name}_norm"] = SequenceParallel()
                plan[f"blocks.{number}.{name}"] = PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                )
        return plan | {"norm": SequenceParallel()}


class FirstStage(nn.Module):
    def __init__(self, model: GPT, end: int):
        super().__init__()
        self.embedding, self.blocks = model.embedding, model.blocks[:end]

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class LastStage(nn.Module):
    def __init__(self, model: GPT, begin: int):
        super().__init__()
        self.embedding, self.blocks, self.norm = model.embedding, model.blocks[begin:], model.norm

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.blocks:
            hidden = block(hidden)
        return linear(self.norm(hidden), self.embedding.weight)


class PipelineByHand(ByHand):
    """Both stages have the embedding, whose gradients are summed."""

    micro_batches = MICRO_BATCHES

    def shared(self, model: GPT, rank: int) -> tuple[nn.Module, Any]:
        middle = len(model.blocks) // 2
        self.embedding: Any = model.embedding.weight
        part = LastStage(model, middle) if rank else FirstStage(model, middle)
        stage = PipelineStage(part, rank, RANKS, torch.device("cpu"))
        self.rank, self.schedule = rank, Schedule1F1B(stage, MICRO_BATCHES, loss_of)
        return part, adamw(part.parameters())

    def update(self, batches: list[Batch]) -> Tensor | None:
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        if self.rank == 0:
            self.schedule.step(torch.cat([batch.inputs for batch in batches]))
        else:
            self.schedule.step(target=torch.cat([batch.content[1] for batch in batches]), losses=losses)
        dist.all_reduce(self.embedding.grad)
        self.optimizer.step()
        return torch.stack(losses).mean().detach() if losses else None


class FSDPByHand(ByHand):
    def shared(self, model: GPT, rank: int) -> tuple[nn.Module, Any]:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        return model, adamw(model.parameters())


class ZeRO1ByHand(ByHand):
    def shared(self, model: GPT, rank: int) -> tuple[nn.Module, Any]:
        wrapped = DistributedDataParallel(model)
        return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=LR, fused=True)


BY_HAND: dict[str, Callable[[GPT, int], ByHand]] = {
    "tensor": TensorByHand,
    "sequence": SequenceByHand,
    "pipeline": PipelineByHand,
    "fsdp": FSDPByHand,
    "zero1": ZeRO1ByHand,
}
