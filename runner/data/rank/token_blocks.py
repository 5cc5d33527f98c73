"""A sequence of tokens, cut into blocks, fetched a batch at a time."""

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.base.option import TokenBlocks


class Blocks:
    """A data set of blocks of tokens: item i is a block and its labels, the next tokens; both (block_size,) int64.

    ``digest``: the sha256 of the text's tokens.
    """

    def __init__(self, blocks: TokenBlocks):
        self.tokens, self.block_size, self.digest = blocks.tokens, blocks.block_size, blocks.digest

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.block_size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        tokens, labels = self.batch(np.array([index]), np.zeros(1, np.uint64))
        return tokens[0], labels[0]

    def batch(self, indices: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        """Fetch a batch. indices, keys: (B,); returns tokens and labels, both (B, block_size), contiguous."""
        size = self.block_size
        rows = np.stack([self.tokens[i * size : (i + 1) * size + 1] for i in indices.tolist()])
        return torch.from_numpy(rows[:, :-1].astype(np.int64)), torch.from_numpy(rows[:, 1:].astype(np.int64))
