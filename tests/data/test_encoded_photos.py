"""Loaders and runs whose JPEGs are decoded by the rank, as with data.decode=cuda; here on the CPU."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from runner.data.base import CorruptSample
from runner.data.batches import Batches
from runner.data.encoded import File
from runner.data.encoded_photos import EncodedPhotos
from runner.data.imagefolder import ImageFolder
from runner.data.sampler import Request
from runner.errors import ConfigurationError
from tests.data.conftest import SIDE
from tests.data.test_imagefolder import DAMAGES, truncate
from tests.data.test_loader import assert_alike, everything, state
from tests.in_process import small, train


def break_tables(path: Path) -> None:
    """Header and end are sound; only decoding finds that there is no quantisation table."""
    path.write_bytes(path.read_bytes().replace(b"\xff\xdb", b"\xff\xfe"))


def split(root: Path, *, train: bool = True, decode: str = "cuda"):
    return ImageFolder(root=str(root), image_size=SIDE, decode=decode).split(train=train)


@pytest.mark.parametrize("is_training", [True, False])
def test_a_loader_gives_the_batches_of_data_decode_cpu(load, photos, is_training):
    options = {"batch_size": 4, "train": is_training, "drop_last": False}
    ours, plain = (load(split(photos, train=is_training, decode=by), **options) for by in ("cuda", "cpu"))
    assert isinstance(ours.batches.dataset, EncodedPhotos)
    for epoch in (0, 1):
        for (images, *rest), (others, *other_rest) in zip(
            everything(ours.epoch(epoch)), everything(plain.epoch(epoch)), strict=True
        ):
            assert images.shape == others.shape
            assert (images - others).abs().mean() < 4 / 255 / 0.5  # of 0..1, over the smallest std of the loader
            assert rest == other_rest


@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_number_of_loader_processes_changes_nothing(load, photos, num_workers):
    plain, spread = (load(split(photos), batch_size=4, num_workers=n, drop_last=False) for n in (0, num_workers))
    for epoch in (0, 1):
        assert_alike(everything(spread.epoch(epoch)), everything(plain.epoch(epoch)))
    assert_alike(everything([plain.example()]), everything(plain.epoch(0))[:1])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_may_have_no_file_that_the_device_decodes(load, own_photos, num_workers):
    from PIL import Image

    for path in own_photos.glob("*/*/*.jpg"):
        Image.open(path).save(path, format="PNG")
    ours, plain = (load(split(own_photos, decode=by), batch_size=4, num_workers=num_workers) for by in ("cuda", "cpu"))
    assert_alike(everything(ours.epoch(0)), everything(plain.epoch(0)))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("damage", [*DAMAGES, break_tables])
def test_damaged_files_follow_on_corrupt_as_with_data_decode_cpu(load, own_photos, damage, is_training, num_workers):
    bad = own_photos / "train" / "coffee" / "2.jpg"
    damage(bad)
    shutil.copy(bad, own_photos / "val" / "person" / "1.jpg")
    options = {"batch_size": 4, "train": is_training, "drop_last": False, "num_workers": num_workers}
    made = [
        load(split(own_photos, train=is_training, decode=by), on_corrupt="skip", **options) for by in ("cuda", "cpu")
    ]
    before = state()
    ours, plain = (everything(each.epoch(0)) for each in made)
    assert state() == before
    assert sum(len(corrupt) for *_, corrupt in ours) == 1
    for (images, *rest), (others, *other_rest) in zip(ours, plain, strict=True):
        assert (images - others).abs().mean() < 4 / 255 / 0.5
        assert rest == other_rest
    bad = bad if is_training else own_photos / "val" / "person" / "1.jpg"
    with pytest.raises(ConfigurationError, match=rf"^{bad} cannot be read .*data\.on_corrupt=skip"):
        list(load(split(own_photos, train=is_training), **options).epoch(0))


def test_what_looks_cut_off_is_not_left_to_the_device(own_photos):
    """nvJPEG may make a picture of it, whose lower part is grey."""
    path = own_photos / "train" / "coffee" / "2.jpg"
    assert isinstance(split(own_photos)[7][0], File)
    truncate(path)
    with pytest.raises(CorruptSample):
        split(own_photos)[7]
    shutil.copy(path.with_name("1.jpg"), path)
    path.write_bytes(path.read_bytes() + b"something of the camera's own")
    assert isinstance(split(own_photos)[7][0], torch.Tensor)


def test_a_run(photos, tmp_path):
    options = ("data=imagefolder", f"data.root={photos}", f"data.image_size={SIDE}", "data.num_workers=0")
    config = small(*options, "data.batch_size=5", "trainer.epochs=2")
    plain = train(tmp_path / "cpu", config).folder.read_result()
    config["data"]["decode"] = "cuda"  # on the command line that is refused without a GPU
    ours = train(tmp_path / "cuda", config).folder.read_result()
    assert (ours["status"], ours["steps"], ours["samples_seen"]) == ("completed", 6, 30)
    assert ours["metrics"]["val_samples"] == 9
    assert ours["metrics"]["val_loss"] == pytest.approx(plain["metrics"]["val_loss"], rel=0.02)
    assert ours["weights_sha256"] != plain["weights_sha256"]


def test_a_share_that_counts_for_nothing_still_counts_for_nothing(photos):
    batches = Batches(split(photos), seed=1, on_corrupt="error", replace_corrupt=True)
    batch = batches[Request(0, np.arange(2), 0, 0.0)]
    assert (batch.count, batch.weight, len(batch.targets)) == (0, 0.0, 2)


def test_pinning_takes_all_that_is_copied_to_the_device(photos, monkeypatch):
    dataset, pinned = split(photos), []
    encoded = dataset.pack([dataset[0][0], torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)], None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self)
    assert encoded.pin_memory() is encoded
    assert [each.data_ptr() for each in pinned] == [encoded.content.data_ptr(), encoded.ready.data_ptr()]
