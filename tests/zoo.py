"""Data sets, models and losses that the tests name as a user's own, by ``_target_``."""

import numpy as np
import torch
from torch import Tensor, nn

from manyheads.runner.data.samples import CorruptSample


class Noise:
    """Float images without augmentation; training sample ``nan`` is not a number."""

    num_classes = 3

    def __init__(self, *, split: str, size: int = 41, nan: int = -1):
        self.train = split == "train"
        draws = np.random.RandomState(5 if self.train else 6)
        self.images = torch.from_numpy(draws.randn(size, 3, 8, 8).astype(np.float32))
        self.targets = draws.randint(0, self.num_classes, size).tolist()
        if self.train and nan >= 0:
            self.images[nan] = float("nan")

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], self.targets[index]


class Glaring(Noise):
    """Noise whose training samples ``at`` are a thousand times as bright as others."""

    def __init__(self, *, split: str, at: list[int], size: int = 160, nan: int = -1):
        super().__init__(split=split, size=size, nan=nan)
        if self.train:
            self.images[at] *= 1000


class Unreadable(Noise):
    """Noise whose sample 3 can't be read, in both splits."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 3:
            raise CorruptSample("three.jpg", "broken")
        return super().__getitem__(index)


class Drawing(Noise):
    """Noise with an augmentation from every generator that a transform may use."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import random

        image, target = super().__getitem__(index)
        return image + torch.rand(1) + random.random() + float(np.random.rand()), target


class Rich(nn.Module):
    """What makes resuming hard: BatchNorm's buffers, and dropout, which draws from the rank's generator."""

    def __init__(self, *, num_classes: int, width: int = 4):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(images)))


class Halted(Rich):
    """Has frozen its body itself, which normalizes by the batch in training."""

    def __init__(self, *, num_classes: int, width: int = 4):
        super().__init__(num_classes=num_classes, width=width)
        self.body.requires_grad_(False)


class Normalized(Rich):
    """Without dropout: the same on every device."""

    def __init__(self, *, num_classes: int, width: int = 4):
        super().__init__(num_classes=num_classes, width=width)
        self.dropout = nn.Identity()


class Rootless(nn.Module):
    """Finite going forward; the gradient of the square root of 0 times 0 is not a number."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.head(images.flatten(1))
        return logits + torch.sqrt(logits * 0) * 0


class Tied(nn.Module):
    """A language model whose embedding is also its head."""

    def __init__(self, *, num_classes: int, width: int = 12):
        super().__init__()
        self.embedding = nn.Embedding(num_classes, width)
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, num_classes, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(self.embedding(tokens))))


class Repeated(nn.Module):
    """One block under three names, as in networks that share their layers."""

    def __init__(self, *, num_classes: int, width: int = 12):
        super().__init__()
        block = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.embedding = nn.Embedding(num_classes, width)
        self.blocks = nn.ModuleList([block, block, block])
        self.head = nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Turned:
    """Points of the plane (2,), and the same points turned by 90 degrees."""

    def __init__(self, *, split: str, size: int = 64):
        generator = torch.Generator().manual_seed(len(split))
        self.points = torch.randn(size, 2, generator=generator)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.points[index]
        return self.points[index], torch.stack([-y, x])


class Spin(nn.Module):
    """Turns points by a complex weight, after a complex buffer that turns by 45 degrees, and a real layer."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.full((1,), 1 + 0.1j, dtype=torch.complex64))
        self.register_buffer("eighth", torch.polar(torch.ones(1), torch.full((1,), torch.pi / 4)), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, points: Tensor) -> Tensor:
        turned = torch.view_as_complex(points.contiguous()) * self.turn * self.eighth
        return torch.view_as_real(turned) * self.scale


class Bags(nn.Module):
    """Classes of token sets, through an embedding with sparse gradients."""

    def __init__(self, *, num_classes: int, sparse: bool = True):
        super().__init__()
        self.embedding = nn.EmbeddingBag(num_classes, 6, sparse=sparse)
        self.head = nn.Linear(6, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens))


class LazyNet(nn.Module):
    """Learns the shape of its inputs from the first batch."""

    def __init__(self, *, num_classes: int):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.LazyLinear(num_classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)


class Extra(Rootless):
    """Keeps in its state how often it was called, beside other plain data, or an object of a class."""

    def __init__(self, *, num_classes: int, has_object: bool = False):
        super().__init__(num_classes)
        self.calls, self.has_object = 0, has_object

    def forward(self, images: Tensor) -> Tensor:
        self.calls += self.training
        return self.head(images.flatten(1))

    def get_extra_state(self) -> dict[object, object]:
        calls = torch.full((2, 2), self.calls, dtype=torch.int16)
        return {"calls": calls, 3: [None, (0.1, "text")], "other": object() if self.has_object else {}}

    def set_extra_state(self, state: dict[object, object]) -> None:
        assert (state[3], state["other"]) == ([None, (0.1, "text")], {})
        self.calls = int(state["calls"].min())


class Unused(nn.Module):
    """A layer that no forward pass uses."""

    def __init__(self, *, num_classes: int):
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, num_classes)
        self.spare = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


class Tokens:
    """Sets of four tokens, in classes by the first one."""

    num_classes = 5

    def __init__(self, *, split: str, size: int = 64):
        self.tokens = torch.randint(5, (size, 4), generator=torch.Generator().manual_seed(len(split)))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.tokens[index], int(self.tokens[index, 0])
