"""Data sets around other ones, which keep what those declare."""

from typing import Any

from manyheads.runner.data.base.option import Dataset


class Around:
    """Has all that ``dataset`` has, such as its classes and its collate_fn, but for what it defines itself.

    ``batch`` is never the other one's, since that would go past what is done to each sample.
    """

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name in ("batch", "dataset"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)
