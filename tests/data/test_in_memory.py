"""Images in memory: enlarged, shifted and mirrored in batches."""

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from manyheads.runner.data.rank import in_memory as memory
from manyheads.runner.data.rank.in_memory import InMemory, crop_flip, resize
from manyheads.runner.random.rank.rng import sample_keys

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
