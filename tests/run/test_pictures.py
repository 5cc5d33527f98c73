"""A picture says after how many updates it was drawn, and stays a picture."""

import io

import pytest
from PIL import Image

from manyheads.runner.run.pictures import step_of, with_step


def test_a_picture_carries_its_step():
    file = io.BytesIO()
    Image.new("L", (3, 2), 7).save(file, format="png")
    png = with_step(file.getvalue(), 120)
    assert step_of(png) == 120
    with Image.open(io.BytesIO(png)) as picture:
        assert (picture.getpixel((0, 0)), picture.text["updates"]) == (7, "120")


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", with_step(b"\x89PNG\r\n\x1a\n" + b"x" * 25, 1)[:44]]
)
def test_other_files_have_none(content):
    assert step_of(content) is None
    assert with_step(b"GIF89a", 3) == b"GIF89a"
