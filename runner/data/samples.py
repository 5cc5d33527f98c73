"""The kinds of samples that data provides, as plain values; ``rank/`` turns them into batches on the device.

Neither this module nor the options' modules import torch, so the parent can check an option before any rank starts.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from manyheads.runner.data.partition import ChosenSamples, Partition
from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.option.locate import load

if TYPE_CHECKING:  # the parent only checks, and starts sooner without it
    import numpy as np


class CorruptSample(Exception):
    """A sample that cannot be read; ``path`` says which."""

    def __init__(self, path: str, reason: object):
        super().__init__(path, reason)
        self.path, self.reason = path, reason


class StoredFile(bytes):
    """The content of a file that is part of a larger one, such as an archive. ``origin``: says which, for messages."""

    origin: Callable[[], str]


@dataclass(frozen=True)
class Augmentation:
    """How images in memory are augmented if ``augment`` is "crop_flip".

    ``shift``: at most this many pixels in each direction, None for an eighth of a side; ``padding``: what fills the
    edge, "zeros" or "reflect". ``flip``: "none"; "random", half of the time; or "alternating", every other epoch, a
    random half of the images in the first one (Jordan 2024, https://arxiv.org/abs/2404.00498).
    """

    shift: int | None = None
    padding: str = "zeros"
    flip: str = "random"


@dataclass(frozen=True)
class ImageArrays:
    """Images that fit into memory, resized to squares of ``image_size`` pixels per side.

    images: (N, C, H, W) uint8, C = 1 or 3; targets: (N,) int64 class numbers, or whatever the task needs, such as masks
    (N, H, W). ``augment``: "none", or "crop_flip": random shifts and horizontal flips, as ``augmentation`` says.
    ``classes``: class names, if known.
    """

    images: "np.ndarray"
    targets: "np.ndarray"
    image_size: int
    augment: str = "none"
    classes: Sequence[str] | None = None
    augmentation: Augmentation = Augmentation()


class Files(ABC):
    """Samples in files, which say themselves how they are read."""

    @abstractmethod
    def read(self) -> "ImageArrays | Dataset":
        """The samples, as a rank takes them. Raises ConfigurationError."""

    def chosen(self, partition: Partition, *, train: bool) -> "Files | None":
        """Those of one side of a partition, None if they can only be chosen once they have been read."""
        return None


@dataclass(frozen=True)
class ImageFiles(Files):
    """Image files, decoded on demand and cropped to squares of ``image_size`` pixels per side.

    ``paths``: the files' paths, or their contents; ``targets``: their class numbers. ``train``: crops are random, and
    flipped half of the time. ``classes``: class names. ``train_size``: size of the square in training, if different;
    ``resize``: of the shorter side before the center crop of an evaluation, None for 256/224 of the square. ``within``:
    the boundary that files must be in (``links.boundary``), None for any place.
    """

    paths: "Sequence[str | bytes]"
    targets: Sequence[int]
    image_size: int
    train: bool
    classes: Sequence[str] | None = None
    train_size: int | None = None
    resize: int | None = None
    within: str | None = None

    def read(self) -> "Dataset":
        photos = load("manyheads.runner.data.rank.photos.Photos")  # which imports torchvision, and few runs need
        return photos(
            self.paths,
            self.targets,
            image_size=(self.train_size if self.train else None) or self.image_size,
            train=self.train,
            classes=self.classes,
            resize=self.resize,
            within=self.within,
        )

    def chosen(self, partition: Partition, *, train: bool) -> "ImageFiles":
        chosen = partition.indices(len(self.paths), train=train)
        paths, targets = ChosenSamples(self.paths, chosen), ChosenSamples(self.targets, chosen)
        return replace(self, paths=paths, targets=targets, train=train)


class FileContents(ABC):
    """A data set whose samples are files, which it decodes."""

    @abstractmethod
    def content(self, index: int) -> bytes:
        """The content of a sample's file."""


@dataclass(frozen=True)
class TableArrays:
    """Rows of numbers and the values to predict. features: (N, F) float32; targets: (N,).

    ``classes``: class names, if the targets are classes; ``encoding``: how a row of a file becomes features, for JSON.
    """

    features: "np.ndarray"
    targets: "np.ndarray"
    classes: Sequence[str] | None = None
    encoding: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TokenBlocks:
    """A text, cut into samples of ``block_size`` tokens.

    tokens: (N,), of any integer dtype; may be memory-mapped, or a ``Row``, which only takes slices. ``digest``: their
    sha256, over all splits that are read from one file; ``read_ahead``: fetches blocks before they are needed.
    """

    tokens: "np.ndarray"
    block_size: int
    digest: str
    read_ahead: ReadAhead | None = None


class Dataset(Protocol):
    """A map-style data set, collated by its own ``collate_fn(samples)`` if it has one, else by torch's default.

    For classification, item i is (image (C, H, W), class number). uint8 images are scaled and normalized on the device;
    float images and other bytes are used unchanged. A data set in memory may also offer ``batch(indices, keys)``, which
    returns a whole batch, with a random key for each sample; if its ``alternates`` is true, the lowest bits of the keys
    are drawn once per sample, and change from epoch to epoch; if its ``uses_keys`` is false, there are no keys, (0,).
    One with ``image_size`` and ``resize(side)`` (None for the full size) supports progressive resizing. ``draws_from``:
    the generators that a sample may draw from, some of "torch", "random" and "numpy"; these are seeded for each sample,
    all three if it has no such attribute. ``set_epoch(epoch)``, if it has one, is called before the first sample of a
    training epoch, counted from 0, in each process that reads: it may redraw the samples, but not change their number.
    ``targets``, ``weights`` and ``lengths``, with a number for each sample, are what data.sampler draws by.

    What it declares goes into the run's model.json, for later use of the trained model: ``classes``, their names;
    ``preprocess``, how an image becomes a sample (``run/model_description.py``); ``mean`` and ``std``, in 0..1, by
    which uint8 images are normalized.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


Samples = ImageArrays | Files | TableArrays | TokenBlocks | Dataset


class DatasetWrapper:
    """A wrapper with all attributes of ``dataset``, such as its classes and its collate_fn, unless it defines its own.

    ``batch`` is never taken over, since that would bypass what the wrapper does to each sample.
    """

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name in ("batch", "dataset"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)


def origin_of(dataset: Any, index: int) -> str:
    """A sample in words: its number in the data set that the wrappers are around, and its file if that is known."""
    while isinstance(dataset, DatasetWrapper):
        index = int(dataset.chosen[index]) if "chosen" in vars(dataset) else index
        dataset = dataset.dataset
    paths = getattr(dataset, "paths", None)
    path = paths[index] if paths is not None and index < len(paths) else None
    return f"sample {index}" + (f" ({path})" if isinstance(path, (str, os.PathLike)) else "")
