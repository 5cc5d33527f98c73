"""Streams that say where they are, and are divided into parts."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

READ: list[int] = []  # the number of each sample that was given


class Kept(IterableDataset):
    """Numbers in an order that is drawn for each pass, with the number of those that were given as its state."""

    def __init__(self, split: str = "train", numbers: range = range(40), shards: int = 1):
        self.numbers, self.num_shards = numbers, shards
        self.order: list[int] = []
        self.at = 0

    def shard(self, num_shards: int, index: int) -> "Kept":
        return type(self)(numbers=self.numbers[index::num_shards])

    def __iter__(self) -> Iterator[Any]:
        if not self.order:
            self.order = random.sample(self.numbers, len(self.numbers))
        while self.at < len(self.order):
            number = self.order[self.at]
            self.at += 1
            READ.append(number)
            yield torch.tensor([float(number), torch.rand(()).item() + np.random.random()])

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.order = state["at"], state["order"]


class KeptImages(Kept):
    """The same, as images and classes; 90 for training, of three files."""

    def __init__(self, split: str = "train", numbers: range | None = None, shards: int = 3):
        super().__init__(numbers=numbers or range(90 if split == "train" else 21), shards=shards)

    def __iter__(self) -> Iterator[Any]:
        for number, _ in super().__iter__():
            noise = np.random.RandomState(int(number)).rand(3, 8, 8)
            yield torch.from_numpy(noise).float() + torch.rand(()) / 8, int(number) % 3


class Behind(Kept):
    """Its state is that of the sample that it has given, which comes again."""

    def state_dict(self) -> dict[str, Any]:
        return {"at": max(0, self.at - 1), "order": self.order}


class Unsaved(Kept):
    """Its state is no value that a checkpoint may hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "order": self.order, "of": object()}
