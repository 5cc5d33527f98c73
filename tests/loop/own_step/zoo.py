"""Small models with several parts, and tasks whose step trains them."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, kl_div, mse_loss, normalize

from manyheads.runner.task.rank.task import Task

SIZE = 32


class Points:
    """(features (4,), class number)."""

    num_classes = 3

    def __init__(self, *, split: str, size: int = SIZE):
        draw = torch.Generator().manual_seed(len(split))
        self.features = torch.randn(size, 4, generator=draw, dtype=torch.float64)
        self.targets = torch.randint(3, (size,), generator=draw)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Any:
        return self.features[index], self.targets[index]


def network(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, out))


class Pair(nn.Module):
    """A generator and a discriminator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = network(2, 4), network(4, 1)


class GAN(Task):
    reduction = "mean"

    def step(self, model: Any, batch: Any, context: Any) -> Iterator[Any]:
        real, fake = batch[0], model.generator(context.randn(2))
        on_real, on_fake = model.discriminator(real), model.discriminator(fake.detach())
        yield "discriminator", (real_or_not(on_real, 1) + real_or_not(on_fake, 0)) / 2
        yield "generator", real_or_not(model.discriminator(fake), 1)


def real_or_not(logits: Tensor, label: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


class Halves(nn.Module):
    """Two networks of the same size."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = network(2, 1), network(2, 1)


class Crossed(Task):
    """Trains one half after the other; the second rank the other way round."""

    reduction = "mean"

    def step(self, model: Any, batch: Any, context: Any) -> Iterator[Any]:
        for part in ("one", "other")[:: -1 if dist.get_rank() else 1]:
            yield part, getattr(model, part)(context.randn(2)).square().mean()


class Taught(nn.Module):
    """A student and a teacher."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        self.student = network(4, 3)

    def forward(self, features: Tensor) -> Tensor:
        return self.student(features)


class Distillation(Task):
    reduction = "mean"
    teachers = ("teacher",)

    def step(self, model: Any, batch: Any, context: Any) -> Iterator[Any]:
        features, classes = batch
        with torch.no_grad():
            taught = model.teacher(features).softmax(1)
        logits = model.student(features)
        yield cross_entropy(logits, classes) + kl_div(logits.log_softmax(1), taught, reduction="batchmean")
        return logits


class Twins(nn.Module):
    """An online network with a predictor, and a target that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.predictor = network(4, 4), nn.Linear(4, 4)
        self.target = copy.deepcopy(self.online)


class BYOL(Task):
    reduction = "mean"
    teachers = ("target",)

    def step(self, model: Any, batch: Any, context: Any) -> Iterator[Any]:
        features, _ = batch
        one, other = features + 0.1 * context.randn(4), features + 0.1 * context.randn(4)
        with torch.no_grad():
            target = normalize(model.target(other), dim=1)
        yield mse_loss(normalize(model.predictor(model.online(one)), dim=1), target)
        context.follow("target", "online", decay=0.9)


class Contrastive(Task):
    reduction = "batch"

    def step(self, model: Any, batch: Any, context: Any) -> Iterator[Any]:
        features, _ = batch
        one = context.gather(normalize(model(features), dim=1))
        other = context.gather(normalize(model(features + 0.1 * context.randn(4)), dim=1))
        yield cross_entropy(one @ other.T / 0.5, torch.arange(len(one), device=one.device))


class Triplets(Task):
    """Metric learning: samples of one class are near each other, in the global batch."""

    reduction = "batch"

    def step(self, model: Any, batch: Any, context: Any) -> Iterator[Any]:
        features, classes = batch
        places, classes = context.gather(model(features)), context.gather(classes)
        squares = (places[:, None] - places[None]).square().sum(2)
        is_same = classes[:, None] == classes[None]
        yield (squares * is_same).mean() + ((1 - squares).clamp(min=0) * ~is_same).mean()


class Projection(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network(4, 4)

    def forward(self, features: Tensor) -> Tensor:
        return self.network(features)
