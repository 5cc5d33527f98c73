"""Images in memory, fetched a batch at a time, without running Python code for each sample."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from manyheads.runner.data.samples import Augmentation, TableArrays, TokenBlocks

PLAIN = Augmentation()
AT_ONCE = 2**24  # bytes; larger sets are resized batch by batch: 10,000 images of 224 pixels would take 1.5 GB


class InMemory:
    """A data set of images in memory, whose batches are (B, 3, size, size) uint8.

    ``images``: (N, C, H, W) uint8, C = 1 or 3; ``targets``: (N,) int64; ``augment``, ``augmentation``: as in
    ImageArrays; ``classes``: their names.
    """

    is_on_device = False
    draws_from = ("torch",)  # whose seed is the key of a single sample

    def __init__(
        self,
        images: Tensor,
        targets: Tensor,
        *,
        image_size: int,
        augment: str = "none",
        classes: Sequence[str] | None = None,
        augmentation: Augmentation = PLAIN,
    ):
        self.classes, self.augmentation = classes, augmentation
        if images.shape[-1] != image_size and images.shape[0] * images.shape[1] * image_size**2 <= AT_ONCE:
            images = resize(images, image_size)
        self.images, self.targets = images, targets
        self.image_size, self.side, self.augment = image_size, image_size, augment
        self.uses_keys = augment == "crop_flip"
        self.alternates = self.uses_keys and augmentation.flip == "alternating"
        if targets.ndim < 3:  # masks would have to be augmented too
            self.resize = self._resize

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        key = torch.initial_seed() % 2**64  # as ``BatchDataset`` has seeded this sample
        images, targets = self.batch(np.array([index]), np.array([key], np.uint64))
        return images[0].cpu(), targets[0].cpu()

    def to(self, device: torch.device) -> None:
        """Move all images to the device, where batches are built from now on."""
        self.images, self.targets, self.is_on_device = self.images.to(device), self.targets.to(device), True

    def _resize(self, side: int | None) -> None:
        """Set the samples' height and width in pixels; None for ``image_size``."""
        self.side = side or self.image_size

    @property
    def preprocess(self) -> dict[str, Any]:
        """How to turn an image into a sample, apart from augmentation."""
        return {"mode": "L" if self.images.shape[1] == 1 else "RGB", "resize": "square", "size": self.image_size}

    def batch(self, indices: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        """Fetch a batch. indices, keys: (B,); returns images (B, 3, size, size) uint8 and targets (B,)."""
        chosen = sent(indices.astype(np.int64), self.images.device)
        images = self.images.index_select(0, chosen)  # ten times as quick as images[chosen] on a CPU
        if images.shape[-1] != self.side:
            images = resize(images, self.side)
        if self.uses_keys:
            images = crop_flip(images, keys, self.augmentation)
        return images.expand(-1, 3, -1, -1), self.targets.index_select(0, chosen)


def sent(values: np.ndarray, device: torch.device) -> Tensor:
    """The values on the device, copied without waiting for its current work."""
    return torch.from_numpy(values).to(device, non_blocking=True)


def resize(images: Tensor, size: int) -> Tensor:
    """Resize images (N, C, H, W) uint8 to (N, C, size, size) uint8, bilinearly."""
    larger = interpolate(images.float(), size=(size, size), mode="bilinear", antialias=True)
    return larger.round_().clamp_(0, 255).to(torch.uint8)


def crop_flip(images: Tensor, keys: np.ndarray, how: Augmentation = PLAIN) -> Tensor:
    """Shift each image (N, C, H, W), and mirror it or not, according to its key (N,)."""
    count, _, height, width = images.shape
    reach = height // 8 if how.shift is None else min(how.shift, height - 1, width - 1)
    device, bits = images.device, sent((keys >> np.uint64(1)).astype(np.int64), images.device)
    span = 2 * reach + 1
    top, left = bits % span, bits // span % span
    rows = top[:, None] + torch.arange(height, device=device)
    columns = left[:, None] + torch.arange(width, device=device)
    columns = torch.where(_mirrored(keys, bits // span**2, how.flip)[:, None], columns.flip(1), columns)
    if how.padding == "reflect":
        rows, columns = _reflected(rows - reach, height), _reflected(columns - reach, width)
    else:
        images = pad(images, (reach, reach, reach, reach))
    numbers = torch.arange(count, device=device)[:, None, None]
    picked = images.permute(0, 2, 3, 1)[numbers, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()


def _mirrored(keys: np.ndarray, bits: Tensor, flip: str) -> Tensor:
    """Which images are mirrored, (N,). ``bits``: the unused bits of the keys."""
    if flip == "alternating":
        return sent((keys & np.uint64(1)).astype(bool), bits.device)
    return (bits % 2).bool() if flip == "random" else torch.zeros_like(bits, dtype=torch.bool)


def _reflected(places: Tensor, side: int) -> Tensor:
    """Pixel positions with those outside 0 to ``side`` - 1 reflected at the edge pixels."""
    return side - 1 - (side - 1 - places.abs()).abs()


class TableDataset:
    """A data set of rows: item i is (features (F,), target)."""

    uses_keys = False

    def __init__(self, table: TableArrays):
        self.features, self.targets = torch.from_numpy(table.features), torch.from_numpy(table.targets)
        self.classes, self.encoding = table.classes, table.encoding

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.features[index], self.targets[index]

    def batch(self, indices: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        """Fetch a batch. indices, keys: (B,); returns features (B, F) and targets (B,)."""
        chosen = torch.from_numpy(indices.astype(np.int64))
        return self.features.index_select(0, chosen), self.targets.index_select(0, chosen)


class TokenDataset:
    """A data set of blocks of tokens: item i is a block and its labels, the next tokens; both (block_size,) int64.

    ``digest``: the sha256 of the text's tokens.
    """

    uses_keys = False

    def __init__(self, blocks: TokenBlocks):
        self.tokens, self.block_size, self.digest = blocks.tokens, blocks.block_size, blocks.digest
        self.read_ahead = blocks.read_ahead

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
