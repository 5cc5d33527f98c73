"""data=mnist, fashion_mnist, cifar10, cifar100: the small data sets of torchvision.datasets.

Source: https://pytorch.org/vision/stable/datasets.html.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from manyheads.runner.data.data_option import DOWNLOAD, Data, DataOption
from manyheads.runner.data.samples import Augmentation, Files, ImageArrays
from manyheads.runner.errors import ConfigurationError


class Known(NamedTuple):
    """torchvision's class, the number of classes, a file below root that exists if the data set does, statistics."""

    kind: str
    classes: int
    evidence: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


KNOWN = {
    "mnist": Known("MNIST", 10, "MNIST/raw/train-images-idx3-ubyte", (0.1307,) * 3, (0.3081,) * 3),
    "fashion_mnist": Known(
        "FashionMNIST", 10, "FashionMNIST/raw/train-images-idx3-ubyte", (0.2860,) * 3, (0.3530,) * 3
    ),
    "cifar10": Known(
        "CIFAR10", 10, "cifar-10-batches-py/data_batch_1", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    ),
    "cifar100": Known("CIFAR100", 100, "cifar-100-python/train", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


class TorchvisionDataOption(DataOption):
    """Declares data that exists, or may be downloaded."""

    imports = ("torchvision",)
    rules: ClassVar = {"download": DOWNLOAD}
    most_workers = 2
    root: str
    download: bool

    def check_keys(self) -> None:
        super().check_keys()
        name, root = self.name, Path(self.root)
        if name not in KNOWN:
            raise ConfigurationError.at("data.name", name, f": allowed are {', '.join(KNOWN)}.")
        if not self.download and not evidence(name, root).exists():
            raise missing(name, root, "data.download=false forbids it")

    def sources(self) -> dict[str, Path]:
        folder = evidence(self.name, Path(self.root)).parent
        return {folder.name: folder}


@dataclass(frozen=True)
class TorchvisionFiles(Files):
    """A data set that torchvision reads from ``root``, downloading it if necessary.

    ``name``: of its option, such as "mnist"; ``image_size``, ``augment`` and ``augmentation`` as in ImageArrays.
    """

    name: str
    root: Path
    train: bool
    download: bool
    image_size: int
    augment: str
    augmentation: Augmentation

    def read(self) -> ImageArrays:
        from manyheads.runner.data.rank import torchvision

        return torchvision.read(self)


class TorchvisionData(Data):
    """``name`` is one of KNOWN; the files lie below ``root`` as torchvision keeps them."""

    def __init__(
        self,
        *,
        name: str,
        root: str,
        download: bool,
        image_size: int,
        augment: str,
        shift: int | None = None,
        padding: str = "zeros",
        flip: str = "random",
    ):
        dataset = KNOWN[name]
        self.num_classes, self.mean, self.std = dataset.classes, dataset.mean, dataset.std
        self.name, self.root, self.download = name, Path(root), download
        self.image_size, self.augment = image_size, augment
        self.augmentation = Augmentation(shift, padding, flip)

    def split(self, *, train: bool) -> TorchvisionFiles:
        augment = self.augment if train else "none"
        return TorchvisionFiles(self.name, self.root, train, self.download, self.image_size, augment, self.augmentation)


def evidence(name: str, root: Path) -> Path:
    """A file that exists if the data set does."""
    return root / KNOWN[name].evidence


def missing(name: str, root: Path, reason: str) -> ConfigurationError:
    """The error that names the path and the remedy."""
    file = evidence(name, root)
    fault = "cannot be read" if file.exists() else "does not exist and could not be downloaded"
    return ConfigurationError.at(
        "data",
        name,
        f": {file} {fault} ({reason}). Copy the files there from a machine that has them, set data.root "
        "to a folder that does, or try data=digits, which needs no files.",
    )
