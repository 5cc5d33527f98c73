"""Rows of numbers in memory, fetched a batch at a time."""

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.base.option import Table


class Rows:
    """A data set of rows: item i is (features (F,), target)."""

    def __init__(self, table: Table):
        self.features, self.targets = torch.from_numpy(table.features), torch.from_numpy(table.targets)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.features[index], self.targets[index]

    def batch(self, indices: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        """Fetch a batch. indices, keys: (B,); returns features (B, F) and targets (B,)."""
        chosen = torch.from_numpy(indices.astype(np.int64))
        return self.features[chosen], self.targets[chosen]
