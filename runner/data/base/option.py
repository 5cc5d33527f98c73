"""What a data option provides: which samples, as plain values. How they reach the device is the rank's affair.

Neither this module nor an option's imports torch, so that the parent can check an option before any rank starts.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from manyheads.runner.data.base.partition import Partition
from manyheads.runner.machine import hardware
from manyheads.runner.option.base import Option
from manyheads.runner.option.rules import AUTO, BOOLEAN, TEXT, Rule, choice, either, number, whole
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import locate

if TYPE_CHECKING:  # the parent only checks, and starts sooner without it
    import numpy as np


OBJECTS = Rule(
    "a list, each {_target_: <class>, ...}",
    lambda v: isinstance(v, list) and all(isinstance(each, dict) and "_target_" in each for each in v),
)


class CorruptSample(Exception):
    """A sample that cannot be read; ``path`` says which."""

    def __init__(self, path: str, reason: object):
        super().__init__(path, reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True)
class Augmentation:
    """How images in memory are shifted and mirrored where ``augment`` is "crop_flip".

    ``shift``: by at most so many pixels in each direction, None for an eighth of a side; ``padding``: what comes in at
    the edge, "zeros" or "reflect". ``flip``: "none"; "random", mirrored half the time; or "alternating", mirrored in
    every other epoch, a random half of the images in the first one (Jordan 2024, https://arxiv.org/abs/2404.00498).
    """

    shift: int | None = None
    padding: str = "zeros"
    flip: str = "random"


@dataclass(frozen=True)
class ImageArrays:
    """Images that fit into memory, enlarged or reduced to squares of ``image_size`` pixels.

    images: (N, C, H, W) uint8, C = 1 or 3; targets: (N,) int64 class numbers, or whatever the task takes, such as masks
    (N, H, W). ``augment``: "none", or "crop_flip": shifted and mirrored as ``augmentation`` says. ``classes``: their
    names, where they have some.
    """

    images: "np.ndarray"
    targets: "np.ndarray"
    image_size: int
    augment: str = "none"
    classes: Sequence[str] | None = None
    augmentation: Augmentation = Augmentation()


@dataclass(frozen=True)
class ImageFiles:
    """Image files, each decoded when its turn comes and cropped to a square of ``image_size`` pixels.

    ``paths``: of the files, or what is in them; ``targets``: the class number of each. ``train``: crops are random, and
    mirrored half the time. ``classes``: their names. ``train_size``: of the square where that is another one in
    training; ``resize``: of the shorter side of which an evaluation sees the middle, None for 256/224 of the square.
    """

    paths: "Sequence[str | bytes]"
    targets: Sequence[int]
    image_size: int
    train: bool
    classes: Sequence[str] | None = None
    train_size: int | None = None
    resize: int | None = None


@dataclass(frozen=True)
class TorchvisionFiles:
    """A data set that torchvision reads, and downloads if need be, below ``root``.

    ``name``: its option's name, such as "mnist"; ``image_size``, ``augment`` and ``augmentation`` as in ImageArrays.
    """

    name: str
    root: Path
    train: bool
    download: bool
    image_size: int
    augment: str
    augmentation: Augmentation = Augmentation()


@dataclass(frozen=True)
class Table:
    """Rows of numbers, and what is to be predicted. features: (N, F) float32; targets: (N,)."""

    features: "np.ndarray"
    targets: "np.ndarray"


@dataclass(frozen=True)
class TokenBlocks:
    """A text, cut into samples of ``block_size`` tokens.

    tokens: (N,), of any unsigned or signed kind; may be mapped into memory. ``digest``: their sha256, of all splits
    that are read from one file.
    """

    tokens: "np.ndarray"
    block_size: int
    digest: str


class Dataset(Protocol):
    """Map-style samples, put together by ``collate_fn(samples)`` where the data set has one, else by torch's own.

    Of a classification item i is (image (C, H, W), class number). uint8 images are scaled and normalised on the device;
    float images are taken as they are. A data set in memory may also offer ``batch(indices, keys)``, which returns a
    whole batch, with a random key for each sample; where its ``alternates`` is true, the keys' lowest bits are drawn
    once for each sample, and change from epoch to epoch. One with ``image_size`` and ``resize(side)``, None for that
    size, may be trained on images that grow.

    What it declares goes into the run's model.json, for whoever uses the trained model: ``classes``, their names;
    ``preprocess``, how an image becomes a sample (``serve/description.py``); of float images ``mean`` and ``std``.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


class DataOption(Option):
    """What a data option declares; asked last, so that ``complete`` may look for the files, by an absolute ``root``.

    ``most_workers``: loader processes per rank beyond which there is nothing to gain; 0 for samples in memory.
    """

    derived = ("num_workers",)
    most_workers: ClassVar[int] = 16
    rules: ClassVar = {
        "root": TEXT,
        "image_size": whole(1),
        "train_image_size": whole(1),
        "val_resize": whole(1),
        "num_classes": whole(1),
        "augment": choice("none", "crop_flip"),
        "shift": whole(0),
        "padding": choice("zeros", "reflect"),
        "flip": choice("none", "random", "alternating"),
        "batch_size": whole(1),
        "num_workers": either(whole(0), AUTO),
        "on_device": BOOLEAN,
        "on_corrupt": choice("error", "skip"),
        "fingerprint": choice("sizes", "contents", "none"),
        "val_fraction": number(above=0, below=1),
        "folds": whole(2),
        "fold": whole(0),
        "split_seed": whole(0),
        "transform": OBJECTS,
        "val_transform": OBJECTS,
    }

    def complete(self, config: dict[str, Any]) -> None:
        if (target := self.section["_target_"]).startswith("manyheads."):
            locate("data", target)  # which imports no torch: a class that does not exist is refused at once
        Partition.of(self.section)
        if self.section.get("on_device"):
            self._refuse_host()
        if self.section["num_workers"] == "auto":  # a core is left for the rank itself, where there are several
            cores = hardware.cores_for_each(config["launcher"]["nproc_per_node"])
            self.section["num_workers"] = min(self.most_workers, max(cores - 1, min(cores, 2)))
        if (shift := self.section.get("shift")) is not None and shift >= self.section["image_size"]:
            raise ConfigurationError(
                f"data.shift={shift} would move images of data.image_size={self.section['image_size']} out of sight. "
                "Lower it, or set it to null, an eighth of a side."
            )
        if self.section.get("root"):
            self.section["root"] = os.path.abspath(os.path.expanduser(self.section["root"]))

    def _refuse_host(self) -> None:
        """Raises ConfigurationError for what makes batches in the host's memory."""
        if self.section["num_workers"] not in (0, "auto"):
            raise ConfigurationError(
                f"data.num_workers={self.section['num_workers']}: with data.on_device=true no loader process has the "
                "images. Set it to 0."
            )
        self.section["num_workers"] = 0
        if given := next((key for key in ("transform", "val_transform") if self.section.get(key)), None):
            raise ConfigurationError(
                f"data.{given} is of samples one at a time, in the host's memory. Set it to [], or set "
                "data.on_device=false."
            )

    def sources(self) -> dict[str, Path]:
        """Files and folders that the samples are read from, by the names by which a fingerprint knows them."""
        return {"root": Path(self.section["root"])} if self.section.get("root") else {}


Samples = ImageArrays | ImageFiles | TorchvisionFiles | Table | TokenBlocks | Dataset


class Data:
    """One data option: samples to train on, to validate on, and maybe to test on.

    ``num_classes``: None where samples have no classes; ``mean`` and ``std``: of each channel, for images in 0..1.
    """

    num_classes: Any = None
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    @property
    def classes_in_words(self) -> str:
        """How many there are, for the run's header; empty where there are none."""
        return f"{self.num_classes} classes" if self.num_classes else ""

    def split(self, *, train: bool) -> Samples:
        """The samples of one split. Raises ConfigurationError."""
        raise NotImplementedError

    def test(self) -> Samples | None:
        """Samples for trainer.test alone; None where there are no such. Raises ConfigurationError."""
        return None
