"""Which part of a photo a sample shows, in the classic ImageNet recipe; drawn from Python's own generator.

Source: https://github.com/pytorch/examples/tree/main/imagenet.
"""

import math
import random
from typing import NamedTuple

AREA = (0.08, 1.0)  # share of the image that a training crop takes
ASPECT = (math.log(3 / 4), math.log(4 / 3))  # its width to its height
TRIES = 10

Box = tuple[int, int, int, int]  # top, left, height, width


class View(NamedTuple):
    """A part of a photo, brought to ``scaled`` (height, width), of which a sample is the middle, mirrored or not.

    ``at_least``: the smallest share of the photo's height and width that need be decoded for it.
    """

    box: Box
    scaled: tuple[int, int]
    at_least: float
    is_mirrored: bool = False


def training_view(height: int, width: int, size: int) -> View:
    """RandomResizedCrop and RandomHorizontalFlip.

    Source: Szegedy et al. 2014 (https://arxiv.org/abs/1409.4842), as torchvision.transforms has it.
    """
    box = random_crop(height, width)
    return crop_view(box, size)._replace(is_mirrored=random.random() < 0.5)


def evaluation_view(height: int, width: int, size: int, *, short: int | None = None) -> View:
    """Resize of the shorter side to ``short``, or size x 256/224; its middle is CenterCrop. Of every pixel there is."""
    return View((0, 0, height, width), scaled_to(height, width, short or shorter_side(size)), at_least=1.0)


def shorter_side(size: int) -> int:
    """To which a photo is resized before a square of ``size`` is cut from its middle."""
    return round(size * 256 / 224)


def scaled_to(height: int, width: int, short: int) -> tuple[int, int]:
    """Height and width of a photo whose shorter side has become ``short``."""
    return (short, short * width // height) if height <= width else (short * height // width, short)


def crop_view(box: Box, size: int) -> View:
    """That part of the photo, of which no more need be decoded than will be seen."""
    return View(box, (size, size), at_least=size / min(box[2:]))


def random_crop(height: int, width: int) -> Box:
    """A crop of random area and aspect; the middle, where none would fit."""
    for _ in range(TRIES):
        area = height * width * random.uniform(*AREA)
        aspect = math.exp(random.uniform(*ASPECT))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    low, high = (math.exp(bound) for bound in ASPECT)
    w, h = min(width, round(height * high)), min(height, round(width / low))
    return (height - h) // 2, (width - w) // 2, h, w
