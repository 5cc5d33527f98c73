"""Images that fit into memory, fetched a batch at a time without a line of Python for each sample."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

AT_ONCE = 2**24  # bytes; larger sets are resized batch by batch, or 10,000 images of 224 pixels would take 1.5 GB


class InMemory:
    """``images``: (N, C, H, W) uint8, C = 1 or 3; ``targets``: (N,) int64. Batches are (B, 3, size, size) uint8.

    ``augment`` "crop_flip": shifted by up to an eighth of a side, mirrored half the time. ``classes``: their names.
    """

    def __init__(
        self,
        images: Tensor,
        targets: Tensor,
        *,
        image_size: int,
        augment: str = "none",
        classes: Sequence[str] | None = None,
    ):
        self.classes = classes
        if images.shape[-1] != image_size and images.shape[0] * images.shape[1] * image_size**2 <= AT_ONCE:
            images = resize(images, image_size)
        self.images, self.targets = images, targets
        self.image_size, self.side, self.augment = image_size, image_size, augment
        if targets.ndim < 3:  # else they are masks, which would have to follow
            self.resize = self._resize

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        images, targets = self.batch(np.array([index]), np.zeros(1, np.uint64))
        return images[0], targets[0]

    def _resize(self, side: int | None) -> None:
        """Samples are so large from now on; None for ``image_size``."""
        self.side = side or self.image_size

    @property
    def preprocess(self) -> dict[str, Any]:
        """How any image becomes a sample, but for what augments it."""
        return {"mode": "L" if self.images.shape[1] == 1 else "RGB", "resize": "square", "size": self.image_size}

    def batch(self, indices: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        """indices, keys: (B,); returns images (B, 3, size, size) uint8 and targets (B,)."""
        chosen = torch.from_numpy(indices.astype(np.int64))
        images = self.images[chosen]
        if images.shape[-1] != self.side:
            images = resize(images, self.side)
        if self.augment == "crop_flip":
            images = crop_flip(images, keys)
        return images.expand(-1, 3, -1, -1), self.targets[chosen]


def resize(images: Tensor, size: int) -> Tensor:
    """(N, C, H, W) uint8 to (N, C, size, size) uint8, bilinear."""
    larger = interpolate(images.float(), size=(size, size), mode="bilinear", antialias=True)
    return larger.round_().clamp_(0, 255).to(torch.uint8)


def crop_flip(images: Tensor, keys: np.ndarray) -> Tensor:
    """Pad by an eighth of a side, crop back at a place, and mirror or not, as each sample's key says."""
    count, _, height, width = images.shape
    reach = height // 8
    bits = torch.from_numpy((keys >> np.uint64(1)).astype(np.int64))
    span = 2 * reach + 1
    top, left, mirrored = bits % span, bits // span % span, (bits // span**2 % 2).bool()
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    padded = pad(images, (reach, reach, reach, reach)).permute(0, 2, 3, 1)
    picked = padded[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()
