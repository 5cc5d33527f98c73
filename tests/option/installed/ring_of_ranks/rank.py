"""What runs in a rank."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyheads.runner.logger.logger import Logger
from manyheads.runner.parallel.rank.process_group import ProcessGroup

SIDE = 8  # of the image that the model sees


class Skipping(nn.Module):
    """Linear layers of ``width``, whose inputs are added to their outputs; for images of any size, (N, C, H, W)."""

    def __init__(self, *, layers: int, width: int, num_classes: int):
        super().__init__()
        self.first = nn.Linear(SIDE**2, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.last = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        small = nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), SIDE)
        hidden = self.first(small.flatten(1))
        for layer in self.layers:
            hidden = hidden + layer(hidden).relu()
        return self.last(hidden)


class Ring(ProcessGroup):
    """Gradients are averaged by passing each rank's own around the ring, ``rounds`` times the same."""

    def __init__(self, *, rounds: int, **place):
        super().__init__(**place)
        self.rounds = rounds

    def synchronize(self, optimizer):
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            for _ in range(self.rounds):
                parameter.grad = self._average(parameter.grad)

    def _average(self, own: Tensor) -> Tensor:
        total, passed = own.clone(), own
        for _ in range(self.world_size - 1):
            received = torch.empty_like(passed)
            sending = dist.isend(passed, (self.rank + 1) % self.world_size)
            dist.recv(received, (self.rank - 1) % self.world_size)
            sending.wait()
            total, passed = total + received, received
        return total / self.world_size


class Jotter(Logger):
    """A line for each epoch, in a file of the run folder or any other."""

    def __init__(self, *, file: str | None):
        self.file = file

    def start(self, run):
        self.path = self.file or run.folder / "jotted.txt"

    def epoch(self, row):
        with open(self.path, "a") as file:
            file.write(f"{row['epoch']}: {row['val_loss']:.6f}\n")
