"""Data sets as users write them, each with one property that a loader must take, or name."""

import multiprocessing

import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    """Rows (8,) of two classes, told apart by their first number."""

    num_classes = 2

    def __init__(self, split: str, samples: int = 64):
        generator = torch.Generator().manual_seed({"train": 1, "val": 2, "test": 3}[split])
        self.split, self.x = split, torch.randn(samples, 8, generator=generator)
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int):
        return self.x[index], int(self.y[index])


class Sorted(Rows):
    """All samples of class 0, then all of class 1."""

    def __init__(self, split: str, samples: int = 64):
        super().__init__(split, samples)
        self.y = (torch.arange(samples) >= samples // 2).long()


class Pooled(Rows):
    """Rows that processes of a pool compute, as code on public U-Nets does; leaving the pool terminates them."""

    def __init__(self, split: str, samples: int = 64):
        super().__init__(split, samples)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            self.y = torch.tensor(pool.map(int, self.y.tolist()))
