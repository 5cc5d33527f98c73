"""The files of torchvision.datasets, read by torchvision, and downloaded by it where that is allowed."""

from typing import Any

import numpy as np

from manyheads.runner.data.data_option import ImageArrays, TorchvisionFiles
from manyheads.runner.data.torchvision import KNOWN, evidence, missing
from manyheads.runner.run.files import in_turn


def read(files: TorchvisionFiles) -> ImageArrays:
    """The images of one split. Raises ConfigurationError when the files are missing or damaged."""
    import torchvision

    kind = getattr(torchvision.datasets, KNOWN[files.name].kind)
    try:
        if files.download and not evidence(files.name, files.root).exists():
            _download(kind, files)
        dataset = kind(files.root, train=files.train)
    except Exception as error:  # each file format has errors of its own
        reason = str(error).splitlines() or [type(error).__name__]
        raise missing(files.name, files.root, reason[0]) from None
    images = np.asarray(dataset.data)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    targets = np.asarray(dataset.targets, dtype=np.int64)
    how = files.augment, list(dataset.classes), files.augmentation
    return ImageArrays(np.ascontiguousarray(images), targets, files.image_size, *how)


def _download(kind: Any, files: TorchvisionFiles) -> None:
    """One rank of this machine downloads, the others wait for it at the lock."""
    files.root.mkdir(parents=True, exist_ok=True)
    with in_turn(files.root.resolve() / f".{kind.__name__}.lock"):
        kind(files.root, download=True)
