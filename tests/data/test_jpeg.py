"""Of a JPEG no more is decoded than needed, and what is decoded is the same to the bit."""

import random
from functools import cache
from io import BytesIO

import numpy as np
import pytest
import simplejpeg
import skimage.data
from PIL import Image

from manyheads.runner.data.rank import jpeg
from manyheads.runner.data.rank.jpeg import PhotoSize, decode

HEIGHT, WIDTH = 375, 500


@cache
def astronaut() -> Image.Image:
    return Image.fromarray(skimage.data.astronaut()).resize((WIDTH, HEIGHT))


def encoded(**options) -> bytes:
    file = BytesIO()
    astronaut().save(file, "JPEG", quality=90, **options)
    return file.getvalue()


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("options", [{}, {"restart_marker_blocks": 5}, {"comment": b"\xff\xc0" * 40}], ids=str)
@pytest.mark.parametrize("at_least", [1.0, 0.5, 0.3, 0.2, 0.1])
def test_the_upper_rows_are_those_of_the_whole(subsampling, options, at_least):
    content, size = encoded(subsampling=subsampling, **options), PhotoSize(HEIGHT, WIDTH).reduced(at_least)
    whole = decode(content, size)
    for until in [1, 8, 17, *range(40, HEIGHT, 31)]:
        upper, rows = decode(content, size, until=until), size.decoded(until)
        assert np.array_equal(upper[:rows], whole[:rows])
        assert rows <= len(upper) <= rows + jpeg.MARGIN + 1 or until > HEIGHT - 40


@pytest.mark.parametrize("side", [1, 7, 8, 9, 100, 333])
def test_sizes_are_those_of_the_decoder(side):
    draw = random.Random(side)
    for width in (side, 2 * side, draw.randint(1, 400)):
        content = simplejpeg.encode_jpeg(np.zeros((side, width, 3), np.uint8))
        for at_least in (1.0, 0.51, 0.5, 0.49, 0.25, 0.13, 0.01, draw.random() / 2):
            size = PhotoSize(side, width).reduced(at_least)
            assert decode(content, size).shape == (size.decoded(side), size.decoded(width), 3)
            assert size.decoded(side) >= side * at_least


@pytest.mark.parametrize("kind", ["progressive", "cut short", "broken header"])
def test_other_files_are_read_to_their_end(kind):
    content = encoded(progressive=kind == "progressive")
    if kind == "cut short":
        content = content[: len(content) // 2]
    if kind == "broken header":
        content = content.replace(b"\xff\xc0", b"\xff\xff\xc0", 1)
    if kind == "cut short":
        with pytest.raises(ValueError, match="remature end"):
            decode(content, PhotoSize(HEIGHT, WIDTH), until=100)
    else:
        assert len(decode(content, PhotoSize(HEIGHT, WIDTH), until=100)) == HEIGHT


def test_an_end_within_the_crop_is_reported():
    content = bytearray(encoded())
    content[3000:3002] = b"\xff\xd9"
    with pytest.raises(ValueError, match="premature end of data"):
        decode(bytes(content), PhotoSize(HEIGHT, WIDTH), until=300)
