"""Reads the files of torchvision.datasets, which torchvision downloads if that is allowed."""

import hashlib
import pickle
from typing import Any

import numpy as np

from manyheads.runner.data.links import boundary, content_of
from manyheads.runner.data.samples import ImageArrays
from manyheads.runner.data.torchvision import KNOWN, TorchvisionFiles, evidence, missing
from manyheads.runner.run.files import in_turn


def read(files: TorchvisionFiles) -> ImageArrays:
    """The images of one split. Raises ConfigurationError if the files are missing or damaged."""
    import torchvision

    kind = getattr(torchvision.datasets, KNOWN[files.name].kind)
    try:
        if files.download and not evidence(files.name, files.root).exists():
            _download(kind, files)
        is_cifar = issubclass(kind, torchvision.datasets.CIFAR10)
        images, targets, classes = (_cifar if is_cifar else _mnist)(kind, files)
    except Exception as error:  # each file format has errors of its own
        reason = str(error).splitlines() or [type(error).__name__]
        raise missing(files.name, files.root, reason[0]) from None
    targets = np.asarray(targets, dtype=np.int64)
    return ImageArrays(images, targets, files.image_size, files.augment, classes, files.augmentation)


def _mnist(kind: Any, files: TorchvisionFiles) -> tuple[np.ndarray, Any, list[str]]:
    dataset = kind(files.root, train=files.train)
    return np.ascontiguousarray(np.asarray(dataset.data)[:, None]), dataset.targets, list(dataset.classes)


def _cifar(kind: Any, files: TorchvisionFiles) -> tuple[np.ndarray, Any, list[str]]:
    """CIFAR's pickles, unpickled from the very bytes that have the known checksum.

    torchvision opens each file once for its checksum and once more to unpickle it: somebody who writes to the folder
    could put other code there in between.
    """
    folder, within = files.root / kind.base_folder, boundary(files.root)

    def unpickled(name: str, md5: str) -> Any:
        content = content_of(folder / name, within=within)
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
            raise ValueError(f"{name} is damaged")
        return pickle.loads(content, encoding="latin1")

    parts = [unpickled(*archive) for archive in (kind.train_list if files.train else kind.test_list)]
    images = np.concatenate([part["data"] for part in parts]).reshape(-1, 3, 32, 32)
    targets = [label for part in parts for label in part["labels" if "labels" in part else "fine_labels"]]
    return images, targets, list(unpickled(kind.meta["filename"], kind.meta["md5"])[kind.meta["key"]])


def _download(kind: Any, files: TorchvisionFiles) -> None:
    """One rank of this machine downloads, the others wait for it at the lock."""
    files.root.mkdir(parents=True, exist_ok=True)
    with in_turn(files.root.resolve() / f".{kind.__name__}.lock"):
        kind(files.root, download=True)
