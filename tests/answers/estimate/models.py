"""Models as a user's own, named by ``_target_``, some of which nobody can follow without data."""

import torch
from torch import Tensor, nn


class Wide(nn.Module):
    """A layer behind another, for images; ``width``: of it."""

    def __init__(self, *, num_classes: int, width: int = 32):
        super().__init__()
        self.inner = Inner(width)
        self.outer = nn.Linear(width, num_classes)
        self.scale = float(torch.linspace(0, 1, 3)[1])  # a value that its constructor looks at

    def forward(self, images: Tensor) -> Tensor:
        return self.outer(self.inner(images)) * self.scale


class Inner(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(3 * 8 * 8, width)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images.flatten(1)).relu()


class Undecided(Wide):
    """What it does depends on the values in its tensors."""

    def __init__(self, *, num_classes: int):
        super().__init__(num_classes=num_classes)
        self.inner = Choosing(32)


class Choosing(Inner):
    def forward(self, images: Tensor) -> Tensor:
        hidden = super().forward(images)
        return hidden if hidden.sum() > 0 else -hidden
