"""Texts with classes, for models of the transformers library."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.data.tokenizing import tokens_of, vocabulary


class Texts:
    """Item i is a dict as such models expect it: input_ids and attention_mask, (max_length,), and labels, ()."""

    def __init__(
        self, rows: Any, column: str, targets: Sequence[int], tokenizer: Any, max_length: int, classes: Sequence[str]
    ):
        self.rows, self.column, self.targets = rows.select_columns(column), column, targets
        self.tokenizer, self.max_length, self.classes = tokenizer, max_length, classes
        self.size = vocabulary(tokenizer)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        text = self.rows[int(index)][self.column] or ""
        numbers = tokens_of(text, self.tokenizer, self.size, f"row {index}")
        return padded(numbers, self.targets[index], self.tokenizer, self.max_length)


def padded(numbers: Sequence[int], target: int, tokenizer: Any, max_length: int) -> dict[str, Tensor]:
    """The tokens of a text and its class, as an item of ``Texts``."""
    tokens = torch.tensor(numbers[:max_length], dtype=torch.int64)
    ids = torch.full((max_length,), getattr(tokenizer, "pad_token_id", None) or 0)
    ids[: len(tokens)] = tokens
    mask = (torch.arange(max_length) < len(tokens)).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor(target)}
