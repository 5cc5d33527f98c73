"""model=mlp: a multilayer perceptron for rows of numbers, or for small images as rows of pixels."""

import itertools

from torch import Tensor, nn


class MLP(nn.Module):
    """``depth`` hidden layers of ``width`` units with ReLU. Takes (N, ...), flattened; returns (N, num_classes)."""

    def __init__(self, *, num_inputs: int, num_classes: int = 1, width: int, depth: int):
        super().__init__()
        sizes = [num_inputs, *[width] * depth]
        hidden = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], num_classes))

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows)
