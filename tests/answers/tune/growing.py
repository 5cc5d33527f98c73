"""Data in which one training sample is larger than the others, and a model that may lack the memory for it."""

import torch
from torch import Tensor, nn

LARGER = 100  # its index


class Samples(torch.utils.data.Dataset):
    """Noise in two classes; one sample after another has to be its own batch."""

    num_classes = 2

    def __init__(self, split: str):
        self.split = split

    def __len__(self) -> int:
        return 120 if self.split == "train" else 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        side = 64 if self.split == "train" and index == LARGER else 8
        return torch.rand(3, side, side), index % 2


class Net(nn.Module):
    """``hungry``: asks for more memory than there is for an image of more than 8x8 pixels."""

    def __init__(self, num_classes: int, hungry: bool = False):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, num_classes)
        )
        self.hungry = hungry

    def forward(self, images: Tensor) -> Tensor:
        if self.hungry and images.shape[-1] > 8:
            torch.empty(2**46)  # torch's allocator refuses
        outputs: Tensor = self.layers(images)
        return outputs
