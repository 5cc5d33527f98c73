"""Image files as samples, in the classic ImageNet recipe, in eight bits from the file to the batch.

Source: https://github.com/pytorch/examples/tree/main/imagenet. Where a JPEG's crop will be made smaller than half its
size, libjpeg-turbo decodes only as much as is needed; it is cut out before anything else is done, and resized as uint8.
That is twice as fast as PIL's way by floats (`make bench`).
"""

import math
import random
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms.v2 import functional

from runner.data.base import CorruptSample

AREA = (0.08, 1.0)  # share of the image that a training crop takes
ASPECT = (math.log(3 / 4), math.log(4 / 3))  # its width to its height
TRIES = 10


class Photos:
    """Item i is ((3, size, size) uint8, class number). ``train``: a random crop, mirrored half the time."""

    def __init__(self, paths: list[str], targets: list[int], *, image_size: int, train: bool):
        self.paths, self.targets = paths, targets
        self.image_size = image_size
        self._view = training_view if train else evaluation_view

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        try:
            return self._view(Picture(path), self.image_size), self.targets[index]
        except Exception as error:  # each image format has errors of its own
            raise CorruptSample(path, error) from None


class Picture:
    """An image file whose size is known; it is decoded when it is known how much of it is needed."""

    def __init__(self, path: str | Path):
        self._path, self._content = path, Path(path).read_bytes()
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

        with Image.open(self._path) as file:
            return np.array(file.convert("RGB"))


def training_view(picture: Picture, size: int) -> Tensor:
    """RandomResizedCrop and RandomHorizontalFlip: (3, size, size) uint8. Draws from Python's own generator.

    Source: Szegedy et al. 2014 (https://arxiv.org/abs/1409.4842), as torchvision.transforms has it.
    """
    view = cropped(picture, random_crop(picture.height, picture.width), size)
    return view.flip(-1) if random.random() < 0.5 else view


def evaluation_view(picture: Picture, size: int) -> Tensor:
    """Resize of the shorter side to size x 256/224, then CenterCrop: (3, size, size) uint8."""
    height, width, short = picture.height, picture.width, round(size * 256 / 224)
    larger = (short, short * width // height) if height <= width else (short * height // width, short)
    return functional.center_crop(resized(picture.decoded(), larger), [size, size])


def cropped(picture: Picture, box: tuple[int, int, int, int], size: int) -> Tensor:
    """A part of the picture as (3, size, size) uint8. ``box``: top, left, height, width."""
    top, left, height, width = box
    image = picture.decoded(at_least=size / min(height, width))
    down, right = image.shape[1] / picture.height, image.shape[2] / picture.width
    rows = slice(round(top * down), max(round((top + height) * down), round(top * down) + 1))
    columns = slice(round(left * right), max(round((left + width) * right), round(left * right) + 1))
    return resized(image[:, rows, columns], (size, size))


def random_crop(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop of random area and aspect; the middle, where none would fit."""
    for _ in range(TRIES):
        area = height * width * random.uniform(*AREA)
        aspect = math.exp(random.uniform(*ASPECT))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    low, high = (math.exp(bound) for bound in ASPECT)
    w, h = min(width, round(height * high)), min(height, round(width / low))
    return (height - h) // 2, (width - w) // 2, h, w


def resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """(3, H, W) uint8 to (3, *size) uint8, bilinear with antialias."""
    return interpolate(image[None], size=size, mode="bilinear", antialias=True)[0]
