"""The base class of data sets that change what another one returns."""

import os
from typing import Any

from manyheads.runner.data.samples import Dataset


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
