"""data=digits: 1,797 handwritten digits of 8x8 pixels, UCI's optical recognition test set, as scikit-learn ships it.

Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html.
"""

import gzip
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.samples import ImageArrays
from manyheads.runner.data.scikit_learn import data_file

if TYPE_CHECKING:  # the parent, which only checks that the file exists, starts without it
    import numpy as np


class DigitsOption(DataOption):
    """Checks that scikit-learn's file exists."""

    most_workers = 0

    def check_keys(self) -> None:
        super().check_keys()
        path()

    def sources(self) -> dict[str, Path]:
        return {"digits.csv.gz": path()}


class Digits(Data):
    """The digits, enlarged to ``image_size`` and repeated on three channels, as torchvision's models need them."""

    num_classes = 10
    mean = (0.305,) * 3
    std = (0.335,) * 3

    def __init__(self, *, image_size: int):
        self.image_size = image_size

    @cached_property
    def _all(self) -> "tuple[np.ndarray, np.ndarray]":
        return read()  # once for both splits

    def split(self, *, train: bool) -> ImageArrays:
        values, labels = self._all
        chosen = split_indices(labels, train=train)
        images = (values[chosen] * 255 // 16).astype("uint8").reshape(-1, 1, 8, 8)
        return ImageArrays(images, labels[chosen], self.image_size, classes=[str(digit) for digit in range(10)])


def path() -> Path:
    """scikit-learn's own file. Raises ConfigurationError."""
    return data_file("digits.csv.gz", option="digits")


def read() -> "tuple[np.ndarray, np.ndarray]":
    """Pixels (1797, 64) in 0..16 and labels (1797,), both int64."""
    import numpy as np

    with gzip.open(path(), "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    return table[:, :-1], table[:, -1]


def split_indices(labels: "np.ndarray", *, train: bool) -> "np.ndarray":
    """The indices of one split: every fifth sample, in the order of classes, validates; 1,438 train, 359 validate."""
    import numpy as np

    validates = np.arange(len(labels)) % 5 == 4
    return np.sort(np.argsort(labels, kind="stable")[validates != train])
