"""A rank that measures the units of a model: bytes of weights, fraction of the computing, bytes of outputs."""

import time
from collections import defaultdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.answers.measure.rank.floors import floors
from manyheads.runner.answers.measure.rank.measuring import measuring, program
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.structure import call, held_bytes, tensors_in
from manyheads.runner.parallel.rank.units import find_units

PASSES = 3  # measured passes, after one to warm up
FP32 = 4  # bytes


def units_of(update: Update, batches: list[Batch]) -> list[list[float]]:
    """Each unit's bytes of trained weights in fp32, fraction of the backward pass, and bytes of outputs.

    A unit is a repeated block, or a layer outside of blocks. Units are in the order of the forward pass. The backward
    pass of one lasts from when the gradients of all later units are ready until its own are.
    """
    watch = UnitTimer(update.parallel.unwrap(update.model), update.parallel.device)
    for number in range(1 + PASSES):
        if number == 1:
            watch.seconds.clear()
        watch.passes(update, batches[0])
    return watch.units()


class UnitTimer:
    """Times the units of a model in backward passes, by when their gradients are ready.

    ``seconds``: of all passes, by name; ``outputs``: bytes of the last pass, by name.
    """

    def __init__(self, model: nn.Module, device: torch.device):
        self.model, self.device = model, device
        self.owner = _owners(model)
        self.seconds: dict[str, float] = defaultdict(float)
        self.outputs: dict[str, float] = {}
        self.order: list[str] = []
        self._before = 0.0

    def passes(self, update: Update, batch: Batch) -> None:
        """Run a forward and a backward pass, whose gradients are discarded."""
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        missing: dict[str, int] = defaultdict(int)
        for name in trained:
            missing[self.owner[name]] += 1
        self.order = []
        units = {name: module for name, module in self.model.named_modules() if name in {*self.owner.values()}}
        handles: list[Any] = [module.register_forward_hook(partial(self._left, name)) for name, module in units.items()]
        for name, parameter in trained.items():
            handles.append(parameter.register_hook(partial(self._arrived, self.owner[name], missing)))
        try:
            steps = update.micro_steps([batch], used=False)
            with update.precision.autocast():
                objective, _ = steps.objective(call(self.model, batch.inputs), batch)
            self._before = self._now()
            torch.autograd.grad(objective, [*trained.values()], allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()

    def _left(self, name: str, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        self.outputs[name] = float(held_bytes(tensors_in(outputs)))

    def _arrived(self, name: str, missing: dict[str, int], _gradient: Tensor) -> None:
        missing[name] -= 1
        if missing[name] == 0:
            now = self._now()
            self.seconds[name] += now - self._before
            self._before = now
            self.order.append(name)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def units(self) -> list[list[float]]:
        """The units' numbers, see ``units_of``."""
        weights: dict[str, float] = defaultdict(float)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                weights[self.owner[name]] += FP32 * parameter.numel()
        total = sum(self.seconds.values()) or 1.0
        names = self.order[::-1]
        return [[weights[name], self.seconds[name] / total, self.outputs.get(name, 0.0)] for name in names]


def _owners(model: nn.Module) -> dict[str, str]:
    """The name of each parameter's unit: the outermost block that contains it, otherwise its layer."""
    try:
        blocks = [*find_units(model, "auto", key="model")]
    except ConfigurationError:  # blocks that share weights
        blocks = []
    blocks = [name for name in blocks if not any(name.startswith(f"{other}.") for other in blocks)]
    owners = {}
    for name, _ in model.named_parameters():
        around = (block for block in blocks if name.startswith(f"{block}."))
        owners[name] = next(around, name.rpartition(".")[0])
    return owners


measured = partial(floors, more=lambda parts: {"units": units_of(parts.update, parts.kept)})
main = program(measuring(measured), __name__)
