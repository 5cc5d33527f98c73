"""Batches that cost nothing to make, so that what is measured is what comes after them."""

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.data_option import Data

CLASSES = 10  # as the photos have, so that one model fits both


class ReadyData(Data):
    """An option for data=custom; ``root`` and ``num_classes`` are keys of that, and of no use here."""

    num_classes = CLASSES

    def __init__(self, *, samples: int, batch: int, image_size: int, root: None = None, num_classes: None = None):
        self.image_size = image_size
        self._batches = Ready(samples=samples, batch=batch, size=image_size)

    def split(self, *, train: bool) -> "Ready":
        return self._batches


class Ready:
    """(B, 3, size, size) uint8, the same ones each time, in memory that loader processes share."""

    def __init__(self, *, samples: int, batch: int, size: int):
        generator = torch.Generator().manual_seed(0)
        self.samples = samples
        self.images = torch.randint(256, (batch, 3, size, size), dtype=torch.uint8, generator=generator)
        self.targets = torch.randint(CLASSES, (batch,), generator=generator)
        self.images.share_memory_()  # or each batch would be copied to the rank

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index % len(self.images)], self.targets[index % len(self.targets)]

    def batch(self, indices: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        return self.images[: len(indices)], self.targets[: len(indices)]


class ReadyFloats(torch.utils.data.Dataset):
    """For the tutorial's loop: normalized images, one by one, as its transforms leave them."""

    def __init__(self, *, samples: int, size: int):
        self.samples, self.image = samples, torch.randn(3, size, size)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.image, index % CLASSES
