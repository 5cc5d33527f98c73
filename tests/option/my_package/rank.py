"""What runs in a rank."""

from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyheads.runner.logger.logger import Logger
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.parallel.rank.process_group import ProcessGroup
from manyheads.runner.precision.rank.precision import PrecisionPolicy
from manyheads.runner.task.rank.task import Task


class Averaging(ProcessGroup):
    """Gradients are averaged after the backward pass, one by one, and multiplied by ``factor``."""

    def __init__(self, *, factor: float, **place):
        super().__init__(**place)
        self.factor = factor

    def synchronize(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad)
                parameter.grad *= self.factor / self.world_size


class Exact(PrecisionPolicy):
    dtype = torch.float64


class Distance(Metric):
    """How far the outputs are from the targets; the lower the better."""

    direction = "min"
    shapes: ClassVar = {"apart": (), "samples": ()}

    def value(self, sums):
        return float(sums["apart"] / sums["samples"]) if sums["samples"] else None


class Shades(Task):
    """The number of the class as a number, and the loss a sum of squares."""

    metrics = (Distance("distance", label="mean distance"),)
    monitor = "distance"

    def __init__(self, *, steepness: float):
        super().__init__()
        self.steepness = steepness

    def loss(self, outputs, batch):
        return self.steepness * (outputs.mean(1) - batch[1]).square().sum()

    def statistics(self, outputs, batch):
        return {"apart": (outputs.mean(1) - batch[1]).abs().sum(), "samples": torch.tensor(len(outputs))}


class Brightest(Metric):
    """The share of samples in the brightest class."""

    shapes: ClassVar = {"brightest": (), "samples": ()}

    def statistics(self, outputs, batch):
        return {"brightest": (batch[1] == 3).sum(), "samples": torch.tensor(len(batch[1]))}

    def value(self, sums):
        return float(sums["brightest"] / sums["samples"]) if sums["samples"] else None


class Notes(Logger):
    """A line for each epoch, in <run>/notes.txt."""

    def start(self, run):
        self.path = run.folder / "notes.txt"

    def epoch(self, row):
        with open(self.path, "a") as file:
            file.write(f"{row['epoch']}: {row['val_distance']:.6f} {row['val_brightest']:.2f}\n")


class Net(nn.Module):
    def __init__(self, *, num_classes: int, features: int):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.LazyLinear(features), nn.ReLU(), nn.Linear(features, num_classes))
        self.body(torch.zeros(1, 3, 8, 8))

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)
