"""Chooses the part of a photo that a sample shows, as in the classic ImageNet recipe, with Python's own generator.

Source: https://github.com/pytorch/examples/tree/main/imagenet.
"""

import math
import random
from typing import NamedTuple

AREA = (0.08, 1.0)  # fraction of the image that a training crop covers
ASPECT = (math.log(3 / 4), math.log(4 / 3))  # log of its width / height
TRIES = 10

Box = tuple[int, int, int, int]  # top, left, height, width


class CropView(NamedTuple):
    """A part of a photo, resized to ``scaled`` (height, width); the sample is its center crop, mirrored or not.

    ``at_least``: the smallest scale at which the photo may be decoded, as a fraction of its height and width.
    """

    box: Box
    scaled: tuple[int, int]
    at_least: float
    is_mirrored: bool = False


def training_view(height: int, width: int, size: int) -> CropView:
    """The view of a training sample: RandomResizedCrop and RandomHorizontalFlip.

    Source: Szegedy et al. 2014 (https://arxiv.org/abs/1409.4842), as in torchvision.transforms.
    """
    return crop_view(random_crop(height, width), size)._replace(is_mirrored=random.random() < 0.5)


def evaluation_view(height: int, width: int, size: int, *, short: int | None = None) -> CropView:
    """The view of an evaluation sample: Resize of the shorter side to ``short``, by default size x 256/224; CenterCrop.

    It needs the photo decoded at full size.
    """
    return CropView((0, 0, height, width), scaled_to(height, width, short or shorter_side(size)), at_least=1.0)


def shorter_side(size: int) -> int:
    """Length in pixels to which a photo's shorter side is resized before a center crop of ``size``."""
    return round(size * 256 / 224)


def scaled_to(height: int, width: int, short: int) -> tuple[int, int]:
    """Height and width of a photo after its shorter side is resized to ``short``."""
    return (short, short * width // height) if height <= width else (short * height // width, short)


def crop_view(box: Box, size: int) -> CropView:
    """The view of a part of the photo, for which it may be decoded at a resolution as low as the sample's."""
    return CropView(box, (size, size), at_least=size / min(box[2:]))


def random_crop(height: int, width: int) -> Box:
    """A crop of random area and aspect ratio; the center if none fits."""
    for _ in range(TRIES):
        area = height * width * random.uniform(*AREA)
        aspect = math.exp(random.uniform(*ASPECT))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    low, high = (math.exp(bound) for bound in ASPECT)
    w, h = min(width, round(height * high)), min(height, round(width / low))
    return (height - h) // 2, (width - w) // 2, h, w
