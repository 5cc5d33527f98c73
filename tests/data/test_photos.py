"""The pipeline against the classic one of PIL and torchvision.transforms: the same distribution and pixels."""

import os
import random
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from torchvision import transforms

from manyheads.runner.data.rank.crops import CropView, crop_view, evaluation_view, training_view
from manyheads.runner.data.rank.photos import Photos, Picture, shown
from manyheads.runner.data.rank.rng import seed_sample
from manyheads.runner.data.samples import CorruptSample


def seen(path: Path, draw: Callable[[int, int, int], CropView], size: int) -> torch.Tensor:
    picture = Picture(path)
    return shown(picture, draw(picture.height, picture.width, size), size)


@pytest.fixture(params=["astronaut", "coffee", "chelsea"])
def photo(request, tmp_path) -> Path:
    path = tmp_path / "photo.jpg"
    Image.fromarray(getattr(skimage.data, request.param)()).resize((500, 375)).save(path, quality=92)
    return path


def test_half_of_the_crops_are_mirrored(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 255
    Image.fromarray(pixels).save(tmp_path / "half.png")
    random.seed(1)
    views = (seen(tmp_path / "half.png", training_view, 8) for _ in range(2000))
    mirrored = sum(bool(view[0, 4, 0] > view[0, 4, -1]) for view in views)
    assert 700 < mirrored < 1100  # of some crops both sides are alike


@pytest.mark.parametrize("kind", ["photo.jpg", "grey.jpg", "photo.png"])
@pytest.mark.parametrize("box", [(0, 0, 375, 500), (40, 60, 224, 224)])
def test_a_mirrored_view_has_the_same_pixels(photo, tmp_path, kind, box):
    with Image.open(photo) as file:
        (file.convert("L") if kind == "grey.jpg" else file).save(tmp_path / kind)
    picture, view = Picture(tmp_path / kind), crop_view(box, 64)
    mirrored = shown(picture, view._replace(is_mirrored=True), 64)
    assert torch.equal(mirrored, shown(picture, view, 64).flip(-1))
    assert mirrored.stride() == (1, 3 * 64, 3)  # channels_last, as it was decoded


def classic(path: Path, box: tuple[int, int, int, int], size: int) -> torch.Tensor:
    top, left, height, width = box
    with Image.open(path) as file:
        crop = file.convert("RGB").crop((left, top, left + width, top + height))
        return transforms.functional.pil_to_tensor(crop.resize((size, size), Image.Resampling.BILINEAR))


BOXES = [(0, 0, 375, 500), (40, 60, 224, 224), (10, 20, 300, 250), (100, 100, 80, 90), (5, 7, 333, 411)]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("larger", [1, 4])  # four times as large, so that less is decoded
def test_pixels_of_fixed_crops_are_the_classic_ones(photo, box, larger):
    with Image.open(photo) as file:
        file.resize((500 * larger, 375 * larger), Image.Resampling.LANCZOS).save(photo, quality=92)
    box = tuple(larger * side for side in box)
    ours = shown(Picture(photo), crop_view(box, 224), 224)
    assert ours.dtype == torch.uint8
    assert (ours.int() - classic(photo, box, 224).int()).abs().double().mean() <= 2


@pytest.mark.parametrize("share", [1.0, 0.51, 0.5, 0.3, 0.25, 0.01])
def test_no_more_is_decoded_than_needed(photo, share):
    height = Picture(photo).decoded(at_least=share).shape[1]
    assert 375 * share <= height <= (375 if share > 0.5 else 375 * (share + 0.13))
    assert (height == 375) == (share > 0.5)


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (374, 499, 1, 1), (0, 0, 375, 1), (370, 0, 5, 500)])
def test_the_smallest_crops_have_pixels(photo, box):
    assert shown(Picture(photo), crop_view(box, 1), 1).shape == (3, 1, 1)


def test_mean_colour_of_training_crops_is_the_classic_one(photo):
    random.seed(1)
    torch.manual_seed(1)
    dataset = Photos([str(photo)], [0], image_size=64, train=True)
    classic = transforms.Compose(
        [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )
    with Image.open(photo) as file:
        image = file.convert("RGB")
    ours = torch.stack([dataset[0][0].double().mean((1, 2)) for _ in range(300)])
    theirs = torch.stack([classic(image).double().mean((1, 2)) for _ in range(300)])
    error = (ours.var(0) / 300 + theirs.var(0) / 300).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 4 * error + 0.5).all()


@pytest.mark.parametrize("shape", [(375, 500), (500, 375), (256, 256), (100, 80)])
def test_evaluation_takes_the_classic_centre(photo, shape):
    with Image.open(photo) as file:
        image = file.convert("RGB").resize(shape[::-1])
    image.save(photo.with_suffix(".png"))
    ours = seen(photo.with_suffix(".png"), evaluation_view, 224)
    classic = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()])(image)
    assert ours.shape == classic.shape
    assert (ours.int() - classic.int()).abs().double().mean() <= 2


def test_a_sample_is_the_same_for_the_same_key(photo):
    dataset = Photos([str(photo)], [0], image_size=64, train=True)
    views = []
    for key in (7, 8, 7):
        seed_sample(key)
        views.append(dataset[0][0])
    assert torch.equal(views[0], views[2])
    assert not torch.equal(views[0], views[1])


@pytest.mark.parametrize(("height", "width"), [(30_000, 30_000), (65_500, 65_500)])
def test_a_small_file_does_not_decode_to_gigabytes(photo, height, width):
    content = bytearray(photo.read_bytes())
    size = content.index(b"\xff\xc0") + 5  # in the frame's header
    content[size : size + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    with pytest.raises(ValueError, match=f"{height} x {width} pixels"):
        Picture(bytes(content))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ValueError, match="not a plain file"):
        Picture(tmp_path / "a.png")


def test_a_file_without_end_is_not_read(tmp_path):
    (tmp_path / "a.png").touch()
    os.truncate(tmp_path / "a.png", 2**40)
    with pytest.raises(ValueError, match="not a plain file"):
        Picture(tmp_path / "a.png")


def test_a_program_that_is_named_like_an_image_is_not_interpreted(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("it was"))
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(OSError, match="cannot identify image file"):
        Picture(path).decoded()


@pytest.mark.parametrize("size", [(30_000, 1), (1, 30_000)])
def test_a_thin_image_is_refused_before_its_shorter_side_is_resized(tmp_path, size):
    """To 256 pixels, it would take 8 GB."""
    Image.new("RGB", size).save(tmp_path / "thin.png")
    photos = Photos([str(tmp_path / "thin.png")], [0], image_size=224, train=False)
    with pytest.raises(CorruptSample, match="it would take (7680000 x 256|256 x 7680000) pixels"):
        photos[0]


GREYS = np.arange(256, dtype=np.uint8).reshape(16, 16)


def tiff(pixels: np.ndarray, *, order: str = "<", bits: int = 16, photometric: int = 1) -> bytes:
    """An uncompressed grey TIFF of 16 bits. ``order``: of bytes, as in struct; ``bits``: that it claims to have."""
    data = pixels.astype(f"{order}u2").tobytes()
    height, width = pixels.shape
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1, 278: height, 279: len(data)}
    entries = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in tags.items())
    head = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8 + len(data))
    return head + data + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)


def saved(image: Image.Image, kind: str) -> bytes:
    image.save(file := BytesIO(), kind)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(saved(Image.fromarray(GREYS.astype(np.uint16) * 257), kind) for kind in ("PNG", "TIFF", "PPM")),
        tiff(GREYS.astype(np.uint16) * 257, order=">"),
        tiff((255 - GREYS.astype(np.uint16)) * 257, photometric=0),
        saved(Image.fromarray(GREYS), "PNG"),
    ],
    ids=["png", "tiff", "pgm", "big-endian", "white-is-zero", "8 bits"],
)
def test_grey_images_of_any_depth_are_scaled_to_eight_bits(content):
    assert np.array_equal(Picture(content).decoded().numpy(), np.stack([GREYS] * 3))
    assert np.array_equal(Picture(content).decoded(order="BGR").numpy(), np.stack([GREYS] * 3))


@pytest.mark.parametrize(
    "content",
    [
        *(saved(Image.fromarray(GREYS.astype(dtype)), "TIFF") for dtype in (np.int32, np.float32)),
        tiff(GREYS.astype(np.uint16), bits=12),
    ],
    ids=["int32", "float32", "12 bits"],
)
def test_numbers_of_unknown_range_are_refused_with_the_name_of_the_file(tmp_path, content):
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    files = Photos([str(path)], [0], image_size=8, train=False)
    with pytest.raises(CorruptSample, match="unknown which value is white; convert it to 8 or 16 bits") as caught:
        files[0]
    assert caught.value.path == str(path)
