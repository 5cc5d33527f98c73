"""data=mnist, fashion_mnist, cifar10, cifar100: the small data sets of torchvision.datasets.

Source: https://pytorch.org/vision/stable/datasets.html.
"""

from pathlib import Path
from typing import Any, NamedTuple

from runner.data.base import Data, Dataset
from runner.errors import ConfigurationError


class Known(NamedTuple):
    """torchvision's class, the number of classes, a file below root that tells whether it is there, statistics."""

    name: str
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


class TorchvisionData(Data):
    """``name`` is one of KNOWN; the files lie below ``root`` as torchvision keeps them."""

    def __init__(self, *, name: str, root: str, download: bool, image_size: int, augment: str):
        self.known, self.name = KNOWN[name], name
        self.num_classes = self.known.classes
        self.mean, self.std = self.known.mean, self.known.std
        self.root, self.download, self.image_size, self.augment = root, download, image_size, augment

    @staticmethod
    def check(section: dict[str, Any]) -> None:
        if section["name"] not in KNOWN:
            raise ConfigurationError(f"data.name={section['name']}: allowed are {', '.join(KNOWN)}.")
        if not section["download"] and not _evidence(section["name"], section["root"]).exists():
            raise missing(section["name"], section["root"], "data.download=false forbids it")

    @staticmethod
    def sources(section: dict[str, Any]) -> dict[str, Path]:
        folder = _evidence(section["name"], section["root"]).parent
        return {folder.name: folder}

    def split(self, *, train: bool) -> Dataset:
        import torch
        import torchvision

        from runner.data.memory import InMemory

        options: dict[str, Any] = {"root": self.root, "train": train}
        try:
            if self.download and not _evidence(self.name, self.root).exists():
                _download(self.known.name, self.root)
            dataset = getattr(torchvision.datasets, self.known.name)(**options)
        except Exception as error:  # each file format has errors of its own
            reason = str(error).splitlines() or [type(error).__name__]
            raise missing(self.name, self.root, reason[0]) from None
        images = torch.as_tensor(dataset.data)
        images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()
        targets = torch.as_tensor(dataset.targets, dtype=torch.int64)
        augment = self.augment if train else "none"
        return InMemory(images, targets, image_size=self.image_size, augment=augment)


def _evidence(name: str, root: str) -> Path:
    return Path(root) / KNOWN[name].evidence


def _download(name: str, root: str) -> None:
    """One rank of this machine downloads, the others wait for it at the lock."""
    import fcntl

    import torchvision

    Path(root).mkdir(parents=True, exist_ok=True)
    with open(Path(root) / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        getattr(torchvision.datasets, name)(root=root, download=True)


def missing(name: str, root: str, reason: str) -> ConfigurationError:
    """The error that names the path and the remedy."""
    file = _evidence(name, root)
    fault = "cannot be read" if file.exists() else "is not there and could not be downloaded"
    return ConfigurationError(
        f"data={name}: {file} {fault} ({reason}). Copy the files there from a machine that has them, set data.root "
        "to a folder that does, or try data=digits, which needs none."
    )
