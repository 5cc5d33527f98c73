"""Decodes only as much of a JPEG as a crop needs: at a fraction of its size if that suffices, and no rows below it.

libjpeg-turbo stops at the height that a file's header claims. With a smaller height, the rows above it are
bit-identical, except for the last ones, whose colours are mixed with those of the next rows; so MARGIN rows more are
decoded.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import simplejpeg

ONE_SCAN = (0xC0, 0xC1)  # markers of frames that are complete row by row, unlike progressive ones
SCAN = 0xDA
SEGMENTS = {*range(0xC0, 0xD0), *range(0xDA, 0xFF)}  # markers that a length follows
MARGIN = 2  # rows of the result
LEAST = 16  # rows of the photo, fewer of which are not worth skipping
REST = re.compile(r"\d+ extraneous bytes before marker 0xd\d")  # the decoder's message about rows that were not decoded


class PhotoSize(NamedTuple):
    """The size of a photo in pixels, and at how many eighths of it to decode it."""

    height: int
    width: int
    eighths: int = 8

    def reduced(self, at_least: float) -> "PhotoSize":
        """The smallest sufficient one. ``at_least``: a fraction of height and width; above a half it is not reduced."""
        if at_least > 0.5:
            return self
        sizes = (self._replace(eighths=eighths) for eighths in range(1, 9))
        return next(size for size in sizes if all(size.decoded(side) >= side * at_least for side in self[:2]))

    def decoded(self, side: int) -> int:
        """The length of a side of the photo, or of a part of it, once decoded."""
        return -(-side * self.eighths // 8)


def decode(content: bytes, size: PhotoSize, *, until: int | None = None, order: str = "RGB") -> np.ndarray:
    """Decode to (H, W, 3) uint8. Raises ValueError.

    ``until``: the photo's first row that may be missing; ``order``: of the channels, RGB or BGR.
    """
    rows = size.height if until is None else until + 8 * MARGIN // size.eighths
    upper = _upper(content, size, rows, order) if rows <= size.height - LEAST else None
    return simplejpeg.decode_jpeg(content, order, **_at(size, size.height)) if upper is None else upper


def _upper(content: bytes, size: PhotoSize, rows: int, order: str) -> np.ndarray | None:
    """The upper ``rows`` of the photo; None for a file that may be damaged, or has to be read to its end."""
    if (height_at := _height_at(content)) is None:
        return None
    lower, pixels = bytearray(content), np.empty((size.decoded(rows), size.decoded(size.width), 3), np.uint8)
    lower[height_at : height_at + 2] = rows.to_bytes(2, "big")
    try:
        simplejpeg.decode_jpeg(lower, order, buffer=pixels, **_at(size, rows))
    except ValueError as error:  # only the first problem is reported
        return pixels if REST.search(str(error)) else None
    return pixels


def _at(size: PhotoSize, rows: int) -> dict[str, int]:
    if size.eighths == 8:
        return {}
    return {"min_height": size.decoded(rows), "min_width": size.decoded(size.width), "min_factor": 2}


def has_one_scan(content: bytes) -> bool:
    """Whether it is certain, without reading beyond the header, that all is in one scan."""
    height_at = _height_at(content)
    scan = next((at for kind, at in _segments(content) if kind == SCAN), None)
    return height_at is not None and scan is not None and content[scan + 4] == content[height_at + 4]  # components


def _height_at(content: bytes) -> int | None:
    """The offset of the height in the header, two bytes; None for a file with several scans, or an unusual header."""
    return next((at + 5 for kind, at in _segments(content) if kind in ONE_SCAN), None)


def _segments(content: bytes) -> Iterator[tuple[int, int]]:
    """Each segment of the header, its marker and offset, as far as nothing unusual is between them."""
    at = 2
    while at + 9 < len(content) and content[at] == 0xFF and content[at + 1] in SEGMENTS:
        yield content[at + 1], at
        if content[at + 1] == SCAN:
            return
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
