"""A folder of photos that is large enough for any row: a few real ones, under many names."""

import os
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images

from tests.benchmarks.gpu.ready import CLASSES

DISTINCT = 64
SIZE = (500, 375)  # about ImageNet's average


def make(root: Path, *, samples: int) -> Path:
    """train/ with so many samples and val/ with one of each class; parts of scikit-learn's photos, as JPEGs."""
    originals = root / "originals"
    originals.mkdir(parents=True)
    pictures = [Image.fromarray(image) for image in load_sample_images().images]
    for number in range(DISTINCT):
        picture, shift = pictures[number % len(pictures)], number // len(pictures)
        part = picture.crop((shift, shift, picture.width - 40 + shift, picture.height - 40 + shift))
        part.resize(SIZE, Image.Resampling.LANCZOS).save(originals / f"{number}.jpg", quality=88 + number % 7)
    for split, count in (("train", samples), ("val", CLASSES)):
        for number in range(count):
            folder = root / split / str(number % CLASSES)
            folder.mkdir(parents=True, exist_ok=True)
            os.link(originals / f"{number % DISTINCT}.jpg", folder / f"{number}.jpg")
    return root
