"""model=mlp: a multilayer perceptron for rows of numbers, or for small images as rows of pixels."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """``depth`` hidden layers of ``width`` units with ReLU. Takes (N, ...), flattened; returns (N, num_classes).

    ``categories``: if a row's last values are positions in lists, the lists' lengths. Each gets an embedding, which is
    zero for position 0, that of unknown values.
    """

    def __init__(
        self, *, num_inputs: int, num_classes: int = 1, width: int, depth: int, categories: Sequence[int] = ()
    ):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, embedded(size), padding_idx=0) for size in categories)
        num_inputs += sum(map(embedded, categories)) - len(categories)
        sizes = [num_inputs, *[width] * depth]
        hidden = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], num_classes))

    def forward(self, rows: Tensor) -> Tensor:
        if not self.embeddings:
            return self.layers(rows)
        numbers, codes = rows[:, : -len(self.embeddings)], rows[:, -len(self.embeddings) :].long()
        parts = [embedding(codes[:, number]) for number, embedding in enumerate(self.embeddings)]
        return self.layers(torch.cat([numbers.to(parts[0].dtype), *parts], dim=1))


def embedded(size: int) -> int:
    """The numbers that stand for one of ``size`` categories, as in fastai's tabular models."""
    return min(50, round(1.6 * size**0.56))
