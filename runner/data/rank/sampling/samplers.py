"""Samplers by name: classes equally often, by weight, several of each class in a batch, similar lengths in a batch.

Each is called with the training samples. They draw from NumPy's generator, which is seeded for each epoch.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from manyheads.runner.data.samples import Dataset
from manyheads.runner.errors import ConfigurationError


class Weighted:
    """Draws each sample in proportion to its weight, with replacement, as many as there are samples.

    The data set's attribute ``weights`` has them, (N,), at least 0.
    """

    def __init__(self, samples: Dataset):
        weights = _of_each(samples, "weights", "weighted").astype(np.float64)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise ConfigurationError.at(
                "data.sampler", "weighted", ": the data set's weights must be finite, at least 0, and not all 0."
            )
        self._ends = np.cumsum(weights / weights.sum())

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[int]:
        yield from np.searchsorted(self._ends, np.random.random(len(self)) * self._ends[-1], side="right").tolist()


class Balanced(Weighted):
    """Draws all classes equally often, with replacement: each sample's weight is one over the size of its class."""

    def __init__(self, samples: Dataset):
        _, classes, sizes = np.unique(_classes(samples, "balanced"), return_inverse=True, return_counts=True)
        self._ends = np.cumsum(1 / (len(sizes) * sizes[classes]))


class PerClass:
    """Batches with ``per_class`` samples of as many classes as fit, for losses that compare samples.

    Classes and their samples are drawn without replacement; a class with fewer samples repeats them. Source: Hermans,
    Beyer and Leibe 2017 (https://arxiv.org/abs/1703.07737), section 2.
    """

    def __init__(self, samples: Dataset, batch_size: int, per_class: int = 4):
        classes = _classes(samples, "per_class")
        self._members = [np.flatnonzero(classes == number) for number in np.unique(classes)]
        self._per_class, self._classes = per_class, batch_size // per_class
        self._batches = len(classes) // batch_size
        if batch_size % per_class or self._classes > len(self._members) or not self._batches:
            raise ConfigurationError.at(
                "data.batch_size",
                batch_size,
                f": data.sampler=per_class takes {per_class} samples of each class in a batch, and {len(classes):,} "
                f"samples have {len(self._members)} classes. Set it to a multiple of {per_class} up to "
                f"{min(per_class * len(self._members), len(classes) // per_class * per_class)}.",
            )

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._batches):
            chosen = np.random.choice(len(self._members), self._classes, replace=False)
            members = (np.random.permutation(self._members[number]) for number in chosen)
            yield np.concatenate([np.resize(samples, self._per_class) for samples in members]).tolist()


class ByLength:
    """Each sample once, in batches of similar lengths, so that little is padded; the batches in random order.

    ``batches``: how many batches' samples are sorted at a time; more is less padding, and less random. The data set's
    attribute ``lengths`` has them, (N,).
    """

    def __init__(self, samples: Dataset, batch_size: int, batches: int = 50):
        self._lengths, self._batch_size = _of_each(samples, "lengths", "by_length"), batch_size
        self._sorted_at_once = batches * batch_size

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.permutation(len(self._lengths))
        order, last = np.split(order, [len(order) // self._batch_size * self._batch_size])
        parts = np.split(order, range(self._sorted_at_once, len(order), self._sorted_at_once))
        by_length = np.concatenate([part[np.argsort(self._lengths[part], kind="stable")] for part in parts])
        yield from np.random.permutation(by_length.reshape(-1, self._batch_size)).tolist()
        if len(last):
            yield last.tolist()


def _classes(samples: Dataset, name: str) -> np.ndarray:
    """The class of each sample, (N,) integers. Raises ConfigurationError."""
    classes = _of_each(samples, "targets", name)
    if classes.dtype.kind not in "iub":
        raise ConfigurationError.at("data.sampler", name, ": the data set's targets are not class numbers.")
    return classes


def _of_each(samples: Dataset, attribute: str, name: str) -> np.ndarray:
    """An attribute of the data set with a number for each sample, (N,). Raises ConfigurationError."""
    values: Any = getattr(samples, attribute, None)
    if values is None or len(values) != len(samples):
        raise ConfigurationError.at(
            "data.sampler",
            name,
            f" needs the {attribute} of the samples. Give the data set an attribute {attribute}, with a number for "
            "each of its samples.",
        )
    numbers = np.array([*values]) if not hasattr(values, "cpu") else values.cpu().numpy()
    if numbers.ndim != 1:
        raise ConfigurationError.at("data.sampler", name, f" needs a single number in {attribute} for each sample.")
    return numbers
