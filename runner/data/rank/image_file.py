"""Image files that anybody may have sent: their formats, and how much they may claim before anything is decoded."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from manyheads.runner.data.rank.jpeg import has_one_scan

# Not all that Pillow reads: it would pass PostScript, whatever the file is called, to an external program, Ghostscript.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
MOST_PIXELS = 400_000_000
SMALL = 40_000_000  # pixels that any file may have; more only in proportion to its bytes, as all photos have
PIXELS_PER_BYTE = 100
MOST_SCANS = 100  # of a JPEG, each of which passes over all its pixels; progressive ones have some ten


def refuse_claim(content: bytes, height: int, width: int) -> None:
    """Raises ValueError for an image whose header claims more pixels or scans than a file of its size may have."""
    most = min(MOST_PIXELS, max(SMALL, PIXELS_PER_BYTE * len(content)))
    if height * width > most:
        raise ValueError(f"it claims {height} x {width} pixels; a file of {len(content):,} bytes may have {most:,}")
    if content[:2] == b"\xff\xd8" and not has_one_scan(content) and (scans := content.count(b"\xff\xda")) > MOST_SCANS:
        raise ValueError(f"it is a JPEG of {scans} scans; it may have {MOST_SCANS}")


def refuse_size(height: int, width: int) -> None:
    """Raises ValueError for more pixels than an image may be resized to."""
    if height * width > MOST_PIXELS:
        raise ValueError(f"it would take {height} x {width} pixels; an image may have {MOST_PIXELS:,}")


@contextmanager
def opened(content: bytes) -> Iterator[Any]:
    """The PIL image of a file's content, not yet decoded. Raises ValueError, OSError."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = MOST_PIXELS  # above which PIL warns; by default far below large photos
    with Image.open(BytesIO(content), formats=FORMATS) as file:
        refuse_claim(content, file.height, file.width)
        yield file
