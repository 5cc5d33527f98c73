"""Image files as samples, in the classic ImageNet recipe, in eight bits from the file to the batch.

Source: https://github.com/pytorch/examples/tree/main/imagenet. Where a JPEG's crop will be made smaller than half its
size, libjpeg-turbo decodes only as much as is needed; it is cut out before anything else is done, and resized as uint8.
That is twice as fast as PIL's way by floats (`make bench`).
"""

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms.v2 import functional

from manyheads.runner.data.base.option import CorruptSample
from manyheads.runner.data.rank.crops import View, evaluation_view, scaled_to, shorter_side, training_view


class Photos:
    """Item i is ((3, size, size) uint8, class number). ``train``: a random crop, mirrored half the time.

    ``paths``: of the files, or what is in them; ``classes``: their names. ``resize``: of the shorter side in an
    evaluation, None for 256/224 of ``image_size``.
    """

    def __init__(
        self,
        paths: Sequence[str | bytes],
        targets: Sequence[int],
        *,
        image_size: int,
        train: bool,
        classes: Sequence[str] | None = None,
        resize: int | None = None,
    ):
        self.paths, self.targets, self.classes = paths, targets, classes
        self.image_size, self.train, self.side = image_size, train, image_size
        self.short = resize or shorter_side(image_size)

    def __len__(self) -> int:
        return len(self.paths)

    def resize(self, side: int | None) -> None:
        """Training samples are so large from now on; None for ``image_size``."""
        self.side = side or self.image_size

    @property
    def preprocess(self) -> dict[str, Any]:
        """How any photo becomes a sample of an evaluation."""
        size = self.image_size
        return {"mode": "RGB", "resize": "shorter_side", "size": self.short, "crop": size}

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        try:
            picture = Picture(path)
            return shown(picture, self._view(picture.height, picture.width), self.side), self.targets[index]
        except Exception as error:  # each image format has errors of its own
            raise CorruptSample(f"sample {index}" if isinstance(path, bytes) else path, error) from None

    def _view(self, height: int, width: int) -> View:
        if self.train:
            return training_view(height, width, self.side)
        return evaluation_view(height, width, self.image_size, short=self.short)


def for_evaluation(pixels: Tensor, short: int, size: int | None) -> Tensor:
    """What an evaluation sees of a photo that is decoded already, (3, H, W) uint8: (3, size, size) uint8.

    short: to which its shorter side is resized; size: None for all of that.
    """
    image = resized(pixels, scaled_to(pixels.shape[1], pixels.shape[2], short))
    return image if size is None else middle(image, size)


class Picture:
    """An image file, or its content, whose size is known; it is decoded when it is known how much of it is needed."""

    def __init__(self, file: str | Path | bytes):
        self._content = file if isinstance(file, bytes) else Path(file).read_bytes()
        try:
            self.height, self.width, colours, _ = simplejpeg.decode_jpeg_header(self._content)
            self._is_jpeg = colours != "CMYK"
        except ValueError:
            self._is_jpeg = False
        if not self._is_jpeg:
            self._pixels = self._by_pil()
            self.height, self.width = self._pixels.shape[:2]

    def decoded(self, *, at_least: float = 1.0) -> Tensor:
        """(3, H, W) uint8. ``at_least``: the smallest share of its height and width that will do."""
        if not self._is_jpeg:
            pixels = self._pixels
        elif at_least > 0.5:
            pixels = simplejpeg.decode_jpeg(self._content)
        else:
            sides = {"min_height": math.ceil(self.height * at_least), "min_width": math.ceil(self.width * at_least)}
            pixels = simplejpeg.decode_jpeg(self._content, **sides, min_factor=2)
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def _by_pil(self) -> np.ndarray:
        from PIL import Image

        with Image.open(BytesIO(self._content)) as file:
            return np.array(file.convert("RGB"))


def shown(picture: Picture, view: View, size: int) -> Tensor:
    """What a view shows of a picture: (3, size, size) uint8."""
    top, left, height, width = view.box
    image = picture.decoded(at_least=view.at_least)
    down, right = image.shape[1] / picture.height, image.shape[2] / picture.width
    rows = slice(round(top * down), max(round((top + height) * down), round(top * down) + 1))
    columns = slice(round(left * right), max(round((left + width) * right), round(left * right) + 1))
    image = middle(resized(image[:, rows, columns], view.scaled), size)
    return image.flip(-1) if view.is_mirrored else image


def middle(image: Tensor, size: int) -> Tensor:
    """(C, H, W) to (C, size, size): CenterCrop."""
    return image if image.shape[1:] == (size, size) else functional.center_crop(image, [size, size])


def resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """(3, H, W) to (3, *size), bilinear with antialias, in the image's own dtype."""
    return interpolate(image[None], size=size, mode="bilinear", antialias=True)[0]
