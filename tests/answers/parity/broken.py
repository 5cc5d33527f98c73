"""Models and losses that are wrong on several ranks, each in one way, named as a user's own by ``_target_``."""

import os

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from manyheads.runner.task.rank.task import Task
from tests.task.sentences import PADDING, NextWord


class Plain(nn.Module):
    """Nothing wrong with it; what the others are made of."""

    def __init__(self, *, num_classes: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


class Normalized(Plain):
    """BatchNorm, twice, and nothing that synchronizes it."""

    def __init__(self, *, num_classes: int):
        super().__init__(num_classes=num_classes)
        self.body.insert(1, nn.BatchNorm2d(4))
        self.last = nn.BatchNorm1d(num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(super().forward(images))


class Dropping(Plain):
    """Dropout; ``functional``: not as a module."""

    def __init__(self, *, num_classes: int, functional: bool = False):
        super().__init__(num_classes=num_classes)
        self.dropout = nn.Identity() if functional else nn.Dropout(0.5)
        self.functional = functional

    def forward(self, images: Tensor) -> Tensor:
        features = self.dropout(self.body(images))
        return self.head(nn.functional.dropout(features, 0.5) if self.functional else features)


class Unused(Plain):
    """A part that no output depends on."""

    def __init__(self, *, num_classes: int):
        super().__init__(num_classes=num_classes)
        self.auxiliary = nn.Linear(16, num_classes)


class Ranked(Plain):
    """``what`` depends on the rank: a "buffer" that no checkpoint holds, or initial "weights"."""

    def __init__(self, *, num_classes: int, what: str):
        super().__init__(num_classes=num_classes)
        rank = int(os.environ["RANK"])
        self.register_buffer("scale", torch.tensor(1.0 + (rank if what == "buffer" else 0)), persistent=False)
        if what == "weights":
            with torch.no_grad():
                self.head.weight += rank

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * self.scale


class Centred(Plain):
    """Depends on the other samples of its batch."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits - logits.mean(dim=0)


class FixedAverage(nn.Module):
    """Divides by what one rank's share used to be."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits, targets, reduction="sum") / 8


class MeanOfClasses(nn.Module):
    """Averages over the classes that are there, not over the samples."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(logits, targets, reduction="none")
        return torch.stack([losses[targets == c].mean() for c in targets.unique()]).mean()


class Careless(NextWord):
    """A mean over words, of which it says that they are samples."""

    reduction = "mean"
    count = Task.count

    def loss(self, outputs, batch):
        return cross_entropy(outputs["logits"].flatten(0, 1), batch["labels"].flatten(), ignore_index=PADDING)
