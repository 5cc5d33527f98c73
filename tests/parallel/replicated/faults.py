"""Data sets that are slow, or hang once, a model that overflows, and the hunt for the lighthouse."""

import math
import os
import time
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor

from manyheads.runner.model.rank.small_cnn import SmallCNN


class Paced:
    """Images that depend on the index, and take some time, so that a run is not over before a fault is."""

    num_classes = 3

    def __init__(self, split: str, seconds: float = 0.0):
        generator = np.random.RandomState(0 if split == "train" else 1)
        count = 208 if split == "train" else 37
        self.images = torch.from_numpy(generator.randint(0, 256, (count, 3, 8, 8)).astype(np.uint8))
        if split == "train":
            self.images[0] = 0  # by which it is recognized
        self._seconds = seconds if split == "train" else 0.0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        time.sleep(self._seconds)
        return self.images[index], index % 3


class Hanging(Paced):
    """The same, but replica ``replica`` never gets its ``after``-th image, once.

    ``once``: a file that remembers it, so that the restarted replica reads on.
    """

    def __init__(self, split: str, once: str, replica: int = 1, after: int = 300, seconds: float = 0.0):
        super().__init__(split, seconds)
        self._once = Path(once)
        self._left = after if split == "train" and os.environ.get("RANK") == str(replica) else -1

    def __getitem__(self, index: int):
        self._left -= 1
        if self._left == 0 and not self._once.exists():
            self._once.touch()
            time.sleep(3600)
        return super().__getitem__(index)


class Overflowing(SmallCNN):
    """Has infinite gradients of one sample in an epoch, whoever has it in its share."""

    def forward(self, images: Tensor) -> Tensor:
        outputs = super().forward(images)
        is_black = (images.amax(dim=(2, 3)) == images.amin(dim=(2, 3))).all(dim=1)
        if outputs.requires_grad and is_black.any():
            outputs.register_hook(lambda gradient: gradient.masked_fill(is_black[:, None], math.inf))
        return outputs


def lighthouse(replica: int) -> psutil.Process:
    """The lighthouse of the run of which ``replica`` is a process id. Raises ValueError while there is none."""
    for process in psutil.Process(replica).parent().children():
        if os.path.basename(os.path.realpath(f"/proc/{process.pid}/fd/2")) == "lighthouse.log":
            return process
    raise ValueError(f"no process beside {replica} is a lighthouse")
