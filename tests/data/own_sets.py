"""Data sets as users write them, each with one property that a loader must take, or name."""

import multiprocessing
from copy import copy

import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, default_collate


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


class Formed(Rows):
    """Samples of a ``form`` that is no pair of a tensor and a class number, or of which some are not."""

    def __init__(self, split: str, form: str, samples: int = 64):
        super().__init__(split, samples)
        self.form = form

    def __getitem__(self, index: int):
        x, y = super().__getitem__(index)
        return {
            "none": None if index == 5 else (x, y),
            "dict": {"x": x, "labels": y},
            "alone": x,
            "pil": (Image.new("L", (8, 8)), y),
            "unequal": (x[: 8 - index % 2], y),
            "types": (x, y if index % 2 else None),
            "object": (x, object()),
            "keys": {"x": x, str(index): y},
        }[self.form]


class Filtered(Rows):
    """Every fifth sample is left out by its ``collate_fn``."""

    def __getitem__(self, index: int):
        return *super().__getitem__(index), index

    @staticmethod
    def collate_fn(samples: list):
        return default_collate([each for each in samples if each[2] % 5])


class Stream(IterableDataset):
    def __init__(self, split: str):
        self.rows = Rows(split)

    def __iter__(self):
        return iter(self.rows)


class Augmented(Rows):
    """Training samples, scaled at random by augmentation; ``offers``: also without it. No validation samples."""

    def __init__(self, split: str, offers: bool = True, samples: int = 64):
        if split != "train":
            raise KeyError(split)
        super().__init__(split, samples)
        self.is_augmented = True
        if offers:
            self.unaugmented = self._unaugmented

    def __getitem__(self, index: int):
        x, y = super().__getitem__(index)
        return (x * torch.rand(()) if self.is_augmented else x), y

    def _unaugmented(self) -> "Augmented":
        view = copy(self)
        view.is_augmented = False
        return view


class WronglyAugmented(Rows):
    def unaugmented(self) -> Rows:
        return Rows("train", 3)


class Filed(Rows):
    """Rows with the name of the file that each comes from, and its class, as attributes of the data set."""

    def __init__(self, split: str, samples: int = 64):
        super().__init__(split, samples)
        self.paths = [f"{split}/{number}-{label}.png" for number, label in enumerate(self.y.tolist())]
        self.targets = self.y.tolist()
