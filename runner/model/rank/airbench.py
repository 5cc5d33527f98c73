"""model=airbench: the network of the CIFAR-10 speed records, whose first layer whitens patches of the training images.

Source: Jordan 2024 (https://arxiv.org/abs/2404.00498); https://github.com/KellerJordan/cifar10-airbench.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

PATCH = 2  # pixels per side
CHUNK = 256  # images whose patches are in memory at once


class Airbench(nn.Module):
    """A frozen layer that whitens patches, then a group of convolutions for each of ``widths``, and a scaled head.

    Takes (N, 3, H, W), H and W at least 1 + 2 ** len(widths); returns logits (N, num_classes).
    ``batchnorm_momentum``: weight of a batch in BatchNorm's running statistics. ``whitening_samples``: number of
    training images whose patches set the first layer before the first update; ``whitening_eps``: added to the
    variances.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        widths: Sequence[int],
        batchnorm_momentum: float,
        whitening_samples: int,
        whitening_eps: float,
    ):
        super().__init__()
        self.initial_samples, self.eps = whitening_samples, whitening_eps
        filters = 2 * 3 * PATCH**2  # each direction and its opposite
        self.whiten = nn.Conv2d(3, filters, PATCH)
        self.whiten.weight.requires_grad_(False)
        groups = [ConvGroup(*pair, momentum=batchnorm_momentum) for pair in itertools.pairwise([filters, *widths])]
        self.groups = nn.Sequential(nn.GELU(), *groups)
        self.head = nn.Linear(widths[-1], num_classes, bias=False)
        with torch.no_grad():
            self.head.weight /= self.head.weight.std()

    def forward(self, images: Tensor) -> Tensor:
        features = self.groups(self.whiten(images)).amax((2, 3))
        return self.head(features) / features.shape[1]

    def initialize(self, images: Tensor) -> None:
        """Set the first layer to whiten patches like those of ``images``, (N, 3, H, W), on the CPU."""
        weight = whitening(images, eps=self.eps)
        self.whiten.weight.copy_(torch.cat([weight, -weight]))


class ConvGroup(nn.Sequential):
    """Two convolutions, initially the identity in their first filters, and pooling that halves height and width."""

    def __init__(self, inputs: int, outputs: int, *, momentum: float):
        super().__init__(
            convolution(inputs, outputs),
            nn.MaxPool2d(2),
            shift_only(outputs, momentum),
            nn.GELU(),
            convolution(outputs, outputs),
            shift_only(outputs, momentum),
            nn.GELU(),
        )


def convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """A 3x3 convolution whose first filters, as many as there are inputs, start as the identity."""
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[:inputs])
    return layer


def shift_only(channels: int, momentum: float) -> nn.BatchNorm2d:
    """BatchNorm whose scale is not trained."""
    norm = nn.BatchNorm2d(channels, eps=1e-12, momentum=momentum)
    norm.weight.requires_grad_(False)
    return norm


def whitening(images: Tensor, *, eps: float) -> Tensor:
    """Filters (3 * PATCH**2, 3, PATCH, PATCH) that make patches of ``images`` uncorrelated, with variance 1.

    images: (N, 3, H, W); patches are not centered. The filters are the eigenvectors of the patches' second moments,
    each divided by the square root of its eigenvalue + ``eps``, small eigenvalues first. They are bit-identical for any
    number of threads.
    """
    threads, shape = torch.get_num_threads(), (images.shape[1], PATCH, PATCH)
    size, count = images.shape[1] * PATCH**2, 0
    torch.set_num_threads(1)
    try:
        moments = torch.zeros(size, size, dtype=torch.float64)
        for chunk in images.double().split(CHUNK):
            patches = chunk.unfold(2, PATCH, 1).unfold(3, PATCH, 1).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)
            moments += patches.T @ patches
            count += len(patches)
        values, vectors = torch.linalg.eigh(moments / count)
    finally:
        torch.set_num_threads(threads)
    return (vectors / (values + eps).sqrt()).T.reshape(-1, *shape)
