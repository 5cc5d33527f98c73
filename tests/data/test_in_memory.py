"""Images in memory: enlarged, shifted and mirrored in batches."""

import re

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from manyheads.runner.data.keys import sample_keys
from manyheads.runner.data.rank import in_memory as memory
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.in_memory import InMemory, crop_flip, resize
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.data.rank.splits import Subset
from manyheads.runner.data.rank.transformed import Transformed
from manyheads.runner.data.samples import Augmentation
from manyheads.runner.errors import ConfigurationError
from tests.in_process import small, train

SIZE, REACH = 16, 2
IMAGES = torch.from_numpy(np.random.RandomState(0).randint(1, 256, (400, 3, SIZE, SIZE)).astype(np.uint8))
KEYS = sample_keys(1, 0, np.arange(400))


def test_each_image_is_a_shift_or_a_mirrored_shift_of_its_own():
    places = set()
    padded = pad(IMAGES, (REACH,) * 4)
    for number, image in enumerate(crop_flip(IMAGES, KEYS)):
        found = [
            (top, left, mirrored)
            for top in range(2 * REACH + 1)
            for left in range(2 * REACH + 1)
            for mirrored in (False, True)
            for view in [padded[number, :, top : top + SIZE, left : left + SIZE]]
            if torch.equal(view.flip(2) if mirrored else view, image)
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) == 50  # every shift, mirrored and not


def test_an_image_s_augmentation_is_its_key_s():
    whole = crop_flip(IMAGES, KEYS)
    assert torch.equal(crop_flip(IMAGES[50:53], KEYS[50:53]), whole[50:53])
    assert torch.equal(crop_flip(IMAGES[[9, 3]], KEYS[[9, 3]]), whole[[9, 3]])
    assert not torch.equal(crop_flip(IMAGES, sample_keys(1, 1, np.arange(400))), whole)


def test_images_smaller_than_8_pixels_are_only_mirrored():
    tiny = IMAGES[:, :, :4, :4]
    for image, before in zip(crop_flip(tiny, KEYS), tiny, strict=True):
        assert torch.equal(image, before) or torch.equal(image, before.flip(2))


def test_resize_keeps_range_and_even_colours():
    even = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
    assert torch.equal(resize(even, 32), torch.full((1, 3, 32, 32), 200, dtype=torch.uint8))
    black_and_white = (IMAGES > 128).to(torch.uint8) * 255
    larger = resize(black_and_white, 40)
    assert larger.dtype == torch.uint8
    assert (int(larger.min()), int(larger.max())) == (0, 255)


@pytest.mark.parametrize("size", [8, 40])
def test_resizing_all_images_at_once_or_batch_by_batch_is_the_same(monkeypatch, size):
    at_once = InMemory(IMAGES, torch.arange(400), image_size=size, augment="crop_flip")
    monkeypatch.setattr(memory, "AT_ONCE", 400 * 3 * size**2 - 1)
    later = InMemory(IMAGES, torch.arange(400), image_size=size, augment="crop_flip")
    assert (at_once.images.shape[-1], later.images.shape[-1]) == (size, SIZE)
    chosen = np.array([7, 399, 20])
    for one, other in zip(at_once.batch(chosen, KEYS[chosen]), later.batch(chosen, KEYS[chosen]), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_has_three_channels_and_the_wanted_size(channels):
    data = InMemory(IMAGES[:, :channels], torch.arange(400), image_size=24)
    images, targets = data.batch(np.array([5, 0, 5], np.int32), KEYS[:3])
    assert images.shape == (3, 3, 24, 24)
    assert images.dtype == torch.uint8
    assert targets.tolist() == [5, 0, 5]
    assert torch.equal(images[0], images[2])
    assert torch.equal(data[5][0], images[0])
    assert len(data) == 400


def test_shifts_bring_in_what_the_padding_says():
    reflected = crop_flip(IMAGES, KEYS, Augmentation(shift=3, padding="reflect", flip="none"))
    padded, places = pad(IMAGES.float(), (3,) * 4, mode="reflect").to(torch.uint8), set()
    for number, image in enumerate(reflected):
        found = [
            (top, left)
            for top in range(7)
            for left in range(7)
            if torch.equal(padded[number, :, top : top + SIZE, left : left + SIZE], image)
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) == 49
    assert torch.equal(crop_flip(IMAGES, KEYS, Augmentation(shift=0, flip="none")), IMAGES)


def epoch_of(number: int, dataset, indices=None) -> torch.Tensor:
    batches = BatchDataset(dataset, seed=3, on_corrupt="error", replace_corrupt=True)
    indices = np.arange(400) if indices is None else indices
    return batches[BatchIndices(number, indices, len(indices), 1.0)].content[0]


def test_keys_are_drawn_only_for_samples_that_depend_on_them(monkeypatch):
    given = []
    monkeypatch.setattr(InMemory, "batch", lambda self, indices, keys: given.append(keys) or (IMAGES, indices))
    for augment in ("none", "crop_flip"):
        data = InMemory(IMAGES, torch.arange(400), image_size=SIZE, augment=augment)
        for dataset in (data, Subset(data, np.arange(400))):
            epoch_of(0, dataset)
    plain, of_subset, *drawn = given
    assert plain.shape == of_subset.shape == (0,)
    for keys in drawn:
        assert np.array_equal(keys, sample_keys(3, 0, np.arange(400)))


def test_alternating_flips_mirror_each_image_in_every_other_epoch():
    how = Augmentation(shift=0, flip="alternating")
    data = InMemory(IMAGES, torch.arange(400), image_size=SIZE, augment="crop_flip", augmentation=how)
    epochs = [epoch_of(number, data) for number in range(4)]
    mirrored = [(epoch == IMAGES.flip(3)).flatten(1).all(1) for epoch in epochs]
    assert 150 < mirrored[0].sum() < 250
    for number, epoch in enumerate(epochs):
        assert torch.equal(mirrored[number], mirrored[number % 2])
        assert torch.equal(epoch[~mirrored[number]], IMAGES[~mirrored[number]])
    assert torch.equal(mirrored[0], ~mirrored[1])
    some = np.array([7, 399, 20])  # another rank's share
    assert torch.equal(epoch_of(1, data, some), epochs[1][some])
    one_by_one = Transformed(data, [lambda image: image])
    assert torch.equal(epoch_of(1, one_by_one), epochs[1])


@pytest.mark.parametrize("flip", ["random", "alternating"])
def test_behind_a_transform_images_are_augmented_the_same(flip):
    how = Augmentation(flip=flip)
    data = InMemory(IMAGES, torch.arange(400), image_size=SIZE, augment="crop_flip", augmentation=how)
    assert torch.equal(epoch_of(2, Transformed(data, [lambda image: image])), epoch_of(2, data))
    assert not torch.equal(epoch_of(2, data), epoch_of(0, data))


def test_images_that_stay_on_the_device_make_the_same_batches(tmp_path):
    given = ("data.augment=crop_flip", "data.flip=alternating", "trainer.epochs=1")
    here, there = (
        train(tmp_path / value, small(*given, f"data.on_device={value}")).folder.read_result()["weights_sha256"]
        for value in ("false", "true")
    )
    assert here == there


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("data.num_workers=2",), "data.num_workers=2: with data.on_device=true no loader process has the images."),
        (("data.transform=[{_target_: torchvision.transforms.v2.RandomErasing}]",), "data.transform needs single"),
        (("data.on_device=false", "data.shift=8"), "data.shift=8 would move images of data.image_size=8 out of sight."),
    ],
)
def test_what_cannot_be_is_refused(overrides, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        small(*(() if "data.on_device=false" in overrides else ("data.on_device=true",)), *overrides)
