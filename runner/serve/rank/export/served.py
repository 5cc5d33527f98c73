"""The model as others call it: from images in 0..1 to its outputs, normalization included."""

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.serve.rank.trained import Trained


class Served(nn.Module):
    """Takes images (N, C, H, W) float32 in 0..1, and normalizes them as the run did.

    Of a data set that makes floats and does not say how, the inputs are what it makes; ``range`` is then None.
    ``shape``: of one input. Raises ConfigurationError for a model whose input is not one tensor of numbers.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, trained: Trained):
        super().__init__()
        about = trained.description
        if about.shape is None or about.dtype is None:
            raise ConfigurationError(
                f"{trained.folder}: its model takes more than one tensor, or tensors of unknown shape. Export it "
                "yourself: manyheads.load(...).model."
            )
        known = about.mean is not None and about.std is not None and about.is_images
        mean, std = (about.mean, about.std) if known else ((0.0,), (1.0,))
        self.model, self.shape = trained.model.cpu(), about.shape
        self.range = [0, 1] if known else None
        side = (-1, 1, 1) if about.is_images else (1,) * len(about.shape)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(side))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(side))

    def forward(self, images: Tensor) -> Tensor:
        return self.model((images - self.mean) / self.std)

    def examples(self, count: int) -> Tensor:
        """Random inputs, the same ones each time: (count, ...) float32 in 0..1."""
        return torch.rand(count, *self.shape, generator=torch.Generator().manual_seed(count))
