"""What the cases read: own classes, texts, photos, and tables, written the same each time."""

import csv
import struct
from pathlib import Path

import numpy as np
from PIL import Image

OWN = """
import numpy as np
import torch
from torch import nn


class Noise:
    num_classes = 3

    def __init__(self, *, split):
        draws = np.random.RandomState(5 if split == "train" else 6)
        self.images = torch.from_numpy(draws.randn(41, 3, 8, 8).astype(np.float32))
        self.targets = draws.randint(0, self.num_classes, 41).tolist()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


class Sentences:
    def __init__(self, *, split):
        self.tokens = torch.from_numpy(np.random.RandomState(7 + (split == "val")).randint(0, 256, (33, 12)))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(16, num_classes))

    def forward(self, images):
        return self.head(self.body(images))
"""


def write(folder: Path) -> None:
    """Everything that a case may name, in its folder."""
    (folder / "own.py").write_text(OWN)
    draws = np.random.RandomState(1)
    for number in range(6):
        text = folder / "texts" / f"{number}.txt"
        text.parent.mkdir(exist_ok=True)
        text.write_bytes(bytes(draws.randint(97, 123, 400).tolist()))
    for split, count in (("train", 8), ("val", 4)):
        for label in ("cat", "dog"):
            photos = folder / "photos" / split / label
            photos.mkdir(parents=True)
            for number in range(count):
                pixels = draws.randint(0, 256, (24, 30, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(photos / f"{number}.png")
    for split, count in (("train", 32), ("validation", 16)):
        table = folder / "table" / f"{split}.csv"
        table.parent.mkdir(exist_ok=True)
        with open(table, "w", newline="") as file:
            csv.writer(file).writerows([["text"], *([f"line {number} of the table"] for number in range(count * 8))])
    raw = folder / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix, count in (("train", 128), ("t10k", 32)):
        pixels, labels = draws.randint(0, 256, (count, 28, 28)).astype(np.uint8), bytes(n % 10 for n in range(count))
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, *pixels.shape) + pixels.tobytes())
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)
    houses = [
        [number, 60 + number % 90, ["Oslo", "Bern", ""][number % 3], 500 + 3 * (number % 90)] for number in range(96)
    ]
    with open(folder / "houses.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "area", "city", "price"], *houses])
