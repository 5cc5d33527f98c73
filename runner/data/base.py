"""What a data option provides. Its module imports no torch until it builds, so that the parent can check it."""

from pathlib import Path
from typing import Any, Protocol


class CorruptSample(Exception):
    """A sample that cannot be read; ``path`` says which."""

    def __init__(self, path: str, reason: object):
        super().__init__(path, reason)
        self.path, self.reason = path, reason


class Dataset(Protocol):
    """Map-style samples: item i is (image (C, H, W), class number).

    uint8 images are scaled and normalised on the device; float images are taken as they are. A data set in
    memory may also offer ``batch(indices, keys) -> (images, targets)``, with a random key for each sample.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Any, Any]: ...


class Data:
    """One data option: two splits of images in ``num_classes`` classes.

    ``mean`` and ``std``: of each channel, for images in 0..1.
    """

    num_classes: int
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    @staticmethod
    def check(section: dict[str, Any]) -> None:
        """Look, in the parent, for what the run would miss. Raises ConfigurationError."""

    @staticmethod
    def sources(section: dict[str, Any]) -> dict[str, Path]:
        """Files and folders that the samples are read from, by the names by which a fingerprint knows them."""
        return {"root": Path(section["root"])} if section.get("root") else {}

    def split(self, *, train: bool) -> Dataset:
        """The samples of one split. Raises ConfigurationError."""
        raise NotImplementedError
