"""Image files as samples, as in the classic ImageNet recipe, in uint8 from the file to the batch.

Source: https://github.com/pytorch/examples/tree/main/imagenet. libjpeg-turbo decodes a JPEG at a lower resolution if
its crop will be reduced to less than half its size, and never the rows below the crop. It is cropped first, and resized
as uint8. That is twice as fast as PIL, which resizes in floating point (`make bench`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms.v2 import functional

from manyheads.runner.data.links import content_of
from manyheads.runner.data.rank.crops import CropView, evaluation_view, scaled_to, shorter_side, training_view
from manyheads.runner.data.rank.image_file import opened, refuse_claim, refuse_size
from manyheads.runner.data.rank.jpeg import PhotoSize, decode
from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.samples import CorruptSample, FileContents, StoredFile

BITS_PER_SAMPLE, PHOTOMETRIC = 258, 262  # tags of a TIFF


class Photos(FileContents):
    """A data set of image files: item i is ((3, size, size) uint8, class index).

    Images are in memory format channels_last, as they are decoded: making them contiguous takes a tenth of a sample's
    time, and is left to the device.

    ``train``: take random crops, mirrored half the time; ``paths``: the files, or their contents; ``classes``: their
    names; ``resize``: length of the shorter side in evaluation, in pixels, None for 256/224 of ``image_size``;
    ``within``: the boundary that the files must be in (``links.boundary``). ``preprocess``: how a photo becomes an
    evaluation sample.
    """

    draws_from = ("random",)

    def __init__(
        self,
        paths: Sequence[str | bytes],
        targets: Sequence[int],
        *,
        image_size: int,
        train: bool,
        classes: Sequence[str] | None = None,
        resize: int | None = None,
        within: str | None = None,
    ):
        self.paths, self.targets, self.classes, self.within = paths, targets, classes, within
        self.image_size, self.train, self.side = image_size, train, image_size
        self.short = resize or shorter_side(image_size)
        self.preprocess = {"mode": "RGB", "resize": "shorter_side", "size": self.short, "crop": image_size}
        self.read_ahead: ReadAhead | None = getattr(paths, "read_ahead", None)

    def __len__(self) -> int:
        return len(self.paths)

    def resize(self, side: int | None) -> None:
        """Set the height and width of training samples, in pixels; None for ``image_size``."""
        self.side = side or self.image_size

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        try:
            picture = Picture(self._content(path))
            return shown(picture, self._view(picture.height, picture.width), self.side), self.targets[index]
        except Exception as error:  # each image format has errors of its own
            raise CorruptSample(_name(path, index), error) from None

    def content(self, index: int) -> bytes:
        return self._content(self.paths[index])

    def _content(self, path: str | bytes) -> bytes:
        return path if isinstance(path, bytes) else content_of(path, within=self.within)

    def _view(self, height: int, width: int) -> CropView:
        if self.train:
            return training_view(height, width, self.side)
        return evaluation_view(height, width, self.image_size, short=self.short)


def _name(path: str | bytes, index: int) -> str:
    if isinstance(path, StoredFile):
        return path.origin()
    return f"sample {index}" if isinstance(path, bytes) else path


def for_evaluation(pixels: Tensor, short: int, size: int | None) -> Tensor:
    """The evaluation sample (3, size, size) uint8 of a decoded photo (3, H, W) uint8.

    short: length of its shorter side after resizing, in pixels; size: of the center crop, None for no crop.
    """
    image = resized(pixels, scaled_to(pixels.shape[1], pixels.shape[2], short))
    return image if size is None else middle(image, size)


class Picture:
    """An image file, or its content. Its size is read at once; it is decoded when the needed resolution is known."""

    def __init__(self, file: str | Path | bytes):
        self._content = file if isinstance(file, bytes) else content_of(file)
        try:
            self.height, self.width, colours, _ = simplejpeg.decode_jpeg_header(self._content)
        except ValueError:
            self._is_jpeg = False
        else:
            self._is_jpeg = colours != "CMYK"
            refuse_claim(self._content, self.height, self.width)
        if not self._is_jpeg:
            self._pixels = self._by_pil()
            self.height, self.width = self._pixels.shape[:2]

    def size(self, at_least: float) -> PhotoSize:
        """The size at which it is decoded. ``at_least``: the smallest sufficient fraction of its height and width."""
        size = PhotoSize(self.height, self.width)
        return size.reduced(at_least) if self._is_jpeg else size

    def decoded(self, *, at_least: float = 1.0, until: int | None = None, order: str = "RGB") -> Tensor:
        """Decode to (3, H, W) uint8, in memory format channels_last.

        ``at_least``: as for ``size``; ``until``: its first row that may be missing; ``order``: of channels, RGB or BGR.
        """
        if self._is_jpeg:
            pixels = decode(self._content, self.size(at_least), until=until, order=order)
        else:
            pixels = self._pixels if order == "RGB" else self._pixels[:, :, ::-1].copy()
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def _by_pil(self) -> np.ndarray:
        with opened(self._content) as file:
            if file.mode.startswith(("I", "F")):
                return np.repeat(_eight_bits(file)[:, :, None], 3, axis=2)
            return np.array(file if file.mode == "RGB" else file.convert("RGB"))


def _eight_bits(file: Any) -> np.ndarray:
    """A grey image (H, W) of 16 bits as uint8; PIL's ``convert`` would cut off what is above 255.

    Raises ValueError for numbers whose range the file does not say, and for 12 bits, which PIL may read wrongly.
    """
    tags = file.tag_v2 if file.format == "TIFF" else {}
    has_range = file.mode.startswith("I;16") or file.format in ("PNG", "PPM")  # of older Pillows, mode I
    if not has_range or tags.get(BITS_PER_SAMPLE, (16,))[0] != 16:
        raise ValueError(
            f"it is a {file.format} of floats, or of other integers than unsigned ones of 8 or 16 bits, so it is "
            "unknown which value is white; convert it to 8 or 16 bits"
        )
    pixels = np.asarray(file).astype(np.int64)
    pixels = 65535 - pixels if tags.get(PHOTOMETRIC) == 0 else pixels  # white is 0
    return ((pixels + 128) // 257).astype(np.uint8)


def shown(picture: Picture, view: CropView, size: int) -> Tensor:
    """The part of a picture that a view shows: (3, size, size) uint8."""
    (top, left, height, width), image_size = view.box, picture.size(view.at_least)
    order = "BGR" if view.is_mirrored else "RGB"
    image = picture.decoded(at_least=view.at_least, until=top + height, order=order)
    down, right = (image_size.decoded(side) / side for side in image_size[:2])
    rows = slice(round(top * down), max(round((top + height) * down), round(top * down) + 1))
    columns = slice(round(left * right), max(round((left + width) * right), round(left * right) + 1))
    image = middle(resized(image[:, rows, columns], view.scaled), size)
    return _reversed(image) if view.is_mirrored else image


def _reversed(image: Tensor) -> Tensor:
    """An image (3, H, W) in channels_last, mirrored and with its channels in reverse order.

    Reversing the bytes of each row takes a quarter of the time of moving whole pixels.
    """
    rows = image.permute(1, 2, 0).flatten(1).flip(1)
    return rows.unflatten(1, (-1, 3)).permute(2, 0, 1)


def middle(image: Tensor, size: int) -> Tensor:
    """The center crop (C, size, size) of an image (C, H, W)."""
    return image if image.shape[1:] == (size, size) else functional.center_crop(image, [size, size])


def resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize an image (3, H, W) to (3, *size), bilinearly with antialiasing, in its own dtype and memory format.

    Raises ValueError for too large a size, such as that of an image of 1 x 30,000 pixels with its shorter side at 256.
    """
    refuse_size(*size)
    channels_last = image.permute(1, 2, 0)[None].permute(0, 3, 1, 2)  # image[None] has strides of neither format
    return interpolate(channels_last, size=size, mode="bilinear", antialias=True)[0]
