"""A model and data whose arguments are what changes do to them: make them faster, or cheat."""

import time

import numpy as np
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """``pause``: seconds that each forward pass sleeps; ``half``: computes in bfloat16 whatever the precision says;
    ``matmul``: torch's precision of float32 products; ``cast``: returns float32 whatever the precision says.
    """

    def __init__(
        self,
        num_classes: int,
        pause: float = 0.0,
        half: bool = False,
        fails: bool = False,
        matmul: str = "",
        cast: bool = True,
    ):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 16), nn.ReLU(), nn.Linear(16, num_classes))
        self.pause, self.half, self.fails, self.cast = pause, half, fails, cast
        if matmul:
            torch.set_float32_matmul_precision(matmul)

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(self.pause)
        if self.fails:
            raise ValueError("planted")
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            outputs = self.layers(images)
        return outputs.float() if self.cast or self.half else outputs


class Samples(torch.utils.data.Dataset):
    """Noise in 10 classes. ``drop``: the fraction of training samples left out; ``leak``: validates on some of them."""

    num_classes = 10

    def __init__(self, split: str, drop: float = 0.0, leak: int = 0):
        numbers = np.random.default_rng(0)
        images = torch.from_numpy(numbers.normal(size=(400, 3, 8, 8)).astype(np.float32))
        classes = torch.from_numpy(numbers.integers(0, 10, 400))
        train, val = torch.arange(320), torch.arange(320, 400)
        chosen = train[: round(320 * (1 - drop))] if split == "train" else torch.cat([val[leak:], train[:leak]])
        self.images_of, self.classes_of = images[chosen], classes[chosen]

    def __len__(self) -> int:
        return len(self.classes_of)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images_of[index], int(self.classes_of[index])
