"""data.decode=cuda on the CPU, which runs the same code: samples, groups of files, and files that it can't decode."""

import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from runner.data import decoder
from runner.data.decoder import Decoder, groups
from runner.data.encoded import Encoded, File
from runner.data.encoded_photos import EncodedPhotos
from runner.data.photos import Photos
from runner.data.sampler import Request
from runner.errors import ConfigurationError
from runner.rng import seed_sample

CPU = torch.device("cpu")
SIZE = 224  # with photos so small nothing is decoded at a fraction of its size
SIZES = [(375, 500), (500, 375), (256, 256), (140, 180), (40, 60)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    """Photos of several sizes: in colour, grey, progressive, and of which no device decodes CMYK and PNG."""
    folder, photo = tmp_path_factory.mktemp("photos"), Image.fromarray(skimage.data.astronaut())
    for number, size in enumerate(SIZES):
        photo.resize(size).save(folder / f"{number}.jpg", quality=92, progressive=number == 2)
    photo.resize((200, 150)).convert("L").save(folder / "grey.jpg", quality=92)
    photo.resize((200, 150)).convert("CMYK").save(folder / "print.jpg", quality=92)
    photo.resize((200, 150)).save(folder / "drawing.png")
    return [str(path) for path in sorted(folder.iterdir())]


def request(count: int) -> Request:
    return Request(0, np.arange(count), count, 1.0)


def pack(dataset: EncodedPhotos, *, key: int = 0) -> Encoded:
    """All of its photos as one batch, each with random numbers of its own."""
    samples = []
    for index in range(len(dataset)):
        seed_sample(key + index)
        samples.append(dataset[index][0])
    return dataset.pack(samples, request(len(samples)))


def decoded(dataset: EncodedPhotos, *, key: int = 0) -> torch.Tensor:
    images = Decoder(CPU)(pack(dataset, key=key))
    assert images is not None
    return images


def plain(dataset: Photos, *, key: int = 0) -> torch.Tensor:
    images = []
    for index in range(len(dataset)):
        seed_sample(key + index)
        images.append(dataset[index][0])
    return torch.stack(images)


def apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of each sample the mean absolute difference, of 255."""
    return (one.int() - other.int()).abs().double().mean((1, 2, 3))


@pytest.mark.parametrize("train", [True, False])
def test_samples_are_those_of_the_cpu(paths, train):
    own = {"image_size": SIZE, "train": train}
    targets = list(range(len(paths)))
    encoded, cpu = EncodedPhotos(paths, targets, **own), Photos(paths, targets, **own)
    for key in range(0, 100, 10):
        ours, theirs = decoded(encoded, key=key), plain(cpu, key=key)
        assert ours.dtype == torch.uint8
        assert ours.shape == theirs.shape == (len(paths), 3, SIZE, SIZE)
        assert apart(ours, theirs).max() <= 2
        assert not torch.equal(ours, ours.flip(-1))  # or a forgotten mirroring would not be seen


def test_large_photos_are_decoded_whole_and_shown_as_the_classic_way_does(tmp_path):
    """Of these the CPU decodes only a fraction of the pixels: another way to make them small."""
    photo = Image.fromarray(skimage.data.astronaut()).resize((1600, 1200), Image.Resampling.LANCZOS)
    photo.save(tmp_path / "0.jpg")
    dataset = EncodedPhotos([str(tmp_path / "0.jpg")], [0], image_size=SIZE, train=True)
    for key in range(10):
        encoded = pack(dataset, key=key)
        top, left, height, width = encoded.views[0].box
        with Image.open(tmp_path / "0.jpg") as file:
            crop = file.convert("RGB").crop((left, top, left + width, top + height))
        classic = pil_to_tensor(crop.resize((SIZE, SIZE), Image.Resampling.BILINEAR))[None]
        classic = classic.flip(-1) if encoded.views[0].is_mirrored else classic
        assert apart(Decoder(CPU)(encoded), classic).max() <= 1


def test_what_a_device_does_not_decode_is_decoded_by_the_loader(paths):
    dataset = EncodedPhotos(paths, list(range(len(paths))), image_size=SIZE, train=False)
    left = [Path(path).name for index, path in enumerate(paths) if isinstance(dataset[index][0], File)]
    assert left == [f"{number}.jpg" for number in range(len(SIZES))] + ["grey.jpg"]


def test_every_sample_has_its_place(paths):
    """First, last and middle ones decoded by the loader."""
    png = next(path for path in paths if path.endswith(".png"))
    jpegs = [path for path in paths if path[-5:] in ("0.jpg", "1.jpg")]
    order = [png, jpegs[0], png, png, jpegs[1], png]
    own = {"image_size": SIZE, "train": False}
    ours = decoded(EncodedPhotos(order, [0] * 6, **own))
    assert apart(ours, plain(Photos(order, [0] * 6, **own))).max() <= 2
    assert (apart(decoded(EncodedPhotos([png] * 2, [0] * 2, **own)), ours[[0, 2]]) == 0).all()


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        ([], []),
        ([10], [(0, 1)]),
        ([10, 10, 10], [(0, 2), (2, 3)]),
        ([100, 1, 1, 100, 100], [(0, 1), (1, 3), (3, 4), (4, 5)]),
        ([20, 1], [(0, 1), (1, 2)]),
    ],
)
def test_no_more_is_decoded_at_once_than_fits(monkeypatch, pixels, expected):
    monkeypatch.setattr(decoder, "AT_ONCE", 60)
    assert list(groups(pixels)) == expected


def test_groups_change_nothing(paths, monkeypatch):
    dataset = EncodedPhotos(paths, [0] * len(paths), image_size=SIZE, train=True)
    whole = decoded(dataset)
    monkeypatch.setattr(decoder, "AT_ONCE", 3 * 375 * 500)
    assert len(list(groups(pack(dataset).pixels))) > 2
    assert torch.equal(decoded(dataset), whole)


class Refusing:
    """torchvision's way with a list of which it can't decode one: an error, and nothing of the others."""

    def __init__(self, jpegs, *lengths: int):
        self.jpegs, self.lengths, self.calls = jpegs, lengths, 0

    def __call__(self, files: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        self.calls += 1
        if any(len(file) in self.lengths for file in files):
            raise RuntimeError("Failed to get image info: 4\nException raised from ...")
        return self.jpegs(files, device)


def test_what_the_device_refuses_is_decoded_by_the_cpu_and_that_is_said_once(paths, caplog):
    dataset = EncodedPhotos(paths[:5] * 4, [0] * 20, image_size=SIZE, train=False)
    encoded, ours = pack(dataset), Decoder(CPU)
    ours._jpegs = refusing = Refusing(ours._jpegs, encoded.lengths[2])
    with caplog.at_level(logging.WARNING):
        images = ours(encoded)
    assert apart(images, plain(dataset.on_cpu())).max() <= 2
    assert refusing.calls < 35  # by halves, not one by one
    assert [record.getMessage() for record in caplog.records] == [
        "cpu can't decode every JPEG, so the CPU does that for some: Failed to get image info: 4"
    ]


def test_a_file_that_nobody_can_decode(paths):
    encoded = pack(EncodedPhotos(paths[:5], [0] * 5, image_size=SIZE, train=False))
    start = sum(encoded.lengths[:3])
    table = encoded.content[start : start + encoded.lengths[3]].numpy().tobytes().index(b"\xff\xdb")
    encoded.content[start + table + 1] = 0xFE  # what was a quantisation table is a comment now
    assert Decoder(CPU)(encoded) is None


def test_memory_that_runs_out_is_no_damaged_file(paths):
    ours = Decoder(CPU)

    def full(files, device):
        raise torch.OutOfMemoryError("CUDA out of memory")

    ours._jpegs = full
    with pytest.raises(torch.OutOfMemoryError):
        ours(pack(EncodedPhotos(paths[:2], [0] * 2, image_size=SIZE, train=False)))


def test_torchvision_s_warning_is_not_the_user_s(paths):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoded(EncodedPhotos(paths[:2], [0] * 2, image_size=SIZE, train=False))
    assert caught == []


def test_a_torchvision_without_decoder_is_refused(monkeypatch):
    monkeypatch.delattr("torchvision.io.decode_jpeg")
    with pytest.raises(ConfigurationError, match=r"^data\.decode=cuda: torchvision .* no decode_jpeg .*decode=cpu"):
        Decoder(CPU)


def test_a_torchvision_without_nvjpeg_is_refused(monkeypatch):
    def without(files, *, mode, device):
        raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support\nmore")

    monkeypatch.setattr("torchvision.io.decode_jpeg", without)
    with pytest.raises(ConfigurationError, match=r"on cpu \(.*nvJPEG support\)\. Set data\.decode=cpu\.$"):
        Decoder(CPU)
