"""A model and data sets of a user's own."""

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    """``width`` is an argument of its own."""

    def __init__(self, num_classes: int, width: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, images):
        return self.layers(images)


class Silent:
    """Declares nothing but its number of classes; makes floats."""

    num_classes = 3

    def __init__(self, split: str):
        generator = np.random.RandomState(0 if split == "train" else 1)
        self.images = generator.randint(0, 256, (16, 8, 8, 3)).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        return self.made(self.images[index]), index % 3

    def made(self, image: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(image).permute(2, 0, 1).float().div(255).sub(0.25).div(0.5)


class Telling(Silent):
    """Says all that there is to say."""

    classes = ("ant", "bee", "cat")
    preprocess = {"mode": "RGB", "resize": "square", "size": 8}
    mean, std = (0.25,) * 3, (0.5,) * 3


class Bytes(Silent):
    """Leaves the normalization to the run, and has a method of the name of what it could declare."""

    def made(self, image: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(image).permute(2, 0, 1)

    def preprocess(self, image):
        return image
