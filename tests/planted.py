"""Faults of a rank: a bit that is flipped in the computation, in memory or in an exchange; and ranks that are slow."""

import gc
import mmap
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.loop.guards.corruption import bits
from manyheads.runner.loop.update import Update
from manyheads.runner.model.rank.small_cnn import SmallCNN
from tests.cpu_quota import group
from tests.zoo import Noise

BIT = 20  # of fp32's mantissa


class Flip(Callback):
    """Flips on rank ``rank`` in the first computation of update ``step``, or, of what is at rest, after that update.

    ``what``: "activation", "batch", "gradient" (its own), "exchange" (gradients after it), "exchanges" (after each of
    that update), "weight" or "optimizer".
    """

    every_rank = True

    def __init__(self, *, what: str, step: int, rank: int = 0):
        self._what, self._step, self._rank = what, step, rank
        self._made, self._is_done = 0, False

    def on_start(self, run: RunContext) -> None:
        self._made, self._model, self._is_here = run.step, run.model, run.rank == self._rank
        if self._is_here:
            plant = {"activation": self._activation, "batch": self._batch, "gradient": self._gradient}
            plant.get(self._what, self._exchange)()

    def on_update(self, step: int) -> None:
        self._made = step
        if self._is_here and step == self._step and self._what in ("weight", "optimizer"):
            found = next(self._model.parameters()) if self._what == "weight" else momentum(self._model)
            flip(found.detach())

    def _is_now(self) -> bool:
        is_now = self._made == self._step - 1 and not self._is_done
        self._is_done |= is_now and self._what != "exchanges"
        return is_now

    def _activation(self) -> None:
        self._model.register_forward_hook(lambda module, inputs, output: flipped(output) if self._is_now() else None)

    def _batch(self) -> None:
        self._model.register_forward_pre_hook(lambda module, inputs: (flipped(inputs[0]),) if self._is_now() else None)

    def _gradient(self) -> None:
        next(self._model.parameters()).register_hook(lambda found: flipped(found) if self._is_now() else None)

    def _exchange(self) -> None:
        compute = Update.compute_gradients

        def corrupting(update: Update, batches: Any) -> Any:
            found = compute(update, batches)
            if self._what.startswith("exchange") and self._is_now():
                flip(next(p.grad for p in update.parameters if p.grad is not None))
            return found

        Update.compute_gradients = corrupting  # type: ignore[method-assign]


def flip(tensor: Tensor) -> None:
    """Flip a bit of the first number, in place."""
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    bits(tensor).view(-1)[0] ^= 1 << BIT


def flipped(tensor: Tensor) -> Tensor:
    """The same with that bit flipped."""
    other = tensor.clone()
    flip(other.detach())
    return other


def momentum(model: nn.Module) -> Tensor:
    """The first tensor of the state of the optimizer that trains this model, or a rank's parts of it."""
    # By type: asking a weak proxy for its class fails once its object is gone.
    own = [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer) and each.state]
    trained = {*map(id, model.parameters())}
    found = next((each for each in own if trained & {*map(id, each.state)}), own[-1])
    return next(value for each in found.state.values() for value in each.values() if isinstance(value, Tensor))


class Dawdling(SmallCNN):
    """small_cnn that sleeps in each training pass on one rank."""

    def __init__(self, *, num_classes: int, rank: int, seconds: float = 0.02):
        super().__init__(num_classes=num_classes, width=2)
        self._seconds = seconds if int(os.environ["RANK"]) == rank else 0.0

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(self._seconds * self.training)
        return super().forward(images)


class SlowData(Noise):
    """Noise that the second rank reads slowly."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if os.environ["RANK"] == "1":
            time.sleep(0.005)
        return super().__getitem__(index)


class SlowDisk(Noise):
    """Noise with a read from the disk for each sample, slow for the second rank, which enters a control group."""

    SIZE = 65536

    def __init__(self, *, split: str, size: int, path: str, control: str):
        super().__init__(split=split, size=size)
        self._path, self._buffer = path, mmap.mmap(-1, self.SIZE)
        if os.environ["RANK"] == "1":
            (Path(control) / "cgroup.procs").write_text("0")

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = os.open(self._path, os.O_RDONLY | os.O_DIRECT)  # past the page cache
        try:
            assert os.preadv(file, [self._buffer], 0) == self.SIZE
        finally:
            os.close(file)
        return super().__getitem__(index)


class Throttled(SmallCNN):
    """small_cnn whose second rank has the CPU quota of a test; without being pinned, as a container's would be."""

    def __init__(self, *, num_classes: int, width: int = 24):
        super().__init__(num_classes=num_classes, width=width)
        if os.environ["RANK"] == "1":
            (group("1") / "cgroup.procs").write_text("0")
