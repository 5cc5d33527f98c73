"""Blocks of tokens in which no token attends to another document."""

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.samples import TokenBlocks

NO_LABEL = -100  # which the loss ignores


class PackedDocuments:
    """Item i is a block of packed documents, as a dict for models of the transformers library.

    input_ids, position_ids, labels: (block_size,) int64; positions count from 0 in each document, and the label of its
    last token is NO_LABEL. attention_mask: (1, block_size, block_size) bool: whether a token (row) attends to another
    one, which must be in the same document and not later. ``ends``: where documents end, in order; ``end_token``: ends
    one too, None if there is no such token.
    """

    def __init__(self, blocks: TokenBlocks, ends: "np.ndarray", end_token: int | None = None):
        self.tokens, self.block_size, self.digest = blocks.tokens, blocks.block_size, blocks.digest
        self.ends, self.end_token, self.read_ahead = ends, end_token, blocks.read_ahead

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.block_size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        first, size = index * self.block_size, self.block_size
        row = torch.from_numpy(self.tokens[first : first + size + 1].astype(np.int64))
        inside = self._ends_inside(row.numpy(), first)
        starts = torch.zeros(size + 1, dtype=torch.int64)
        starts[torch.from_numpy(inside)] = 1
        documents = starts.cumsum(0)
        begins = torch.cat([torch.zeros(1, dtype=torch.int64), torch.from_numpy(inside)])[documents[:size]]
        positions = torch.arange(size)
        labels = row[1:].masked_fill(documents[1:] != documents[:-1], NO_LABEL)
        same = documents[:size, None] == documents[None, :size]
        return {
            "input_ids": row[:-1],
            "position_ids": positions - begins,
            "attention_mask": (same & (positions[:, None] >= positions[None]))[None],
            "labels": labels,
        }

    def _ends_inside(self, row: "np.ndarray", first: int) -> "np.ndarray":
        """The places after ``first`` and within the block at which documents end, counted from its begin."""
        low, high = np.searchsorted(self.ends, [first, first + self.block_size], "right")
        ends = self.ends[low:high] - first
        if self.end_token is None:
            return ends
        return np.union1d(ends, np.flatnonzero(row[:-1] == self.end_token) + 1)
