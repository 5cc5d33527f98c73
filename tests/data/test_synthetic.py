"""Images made from a seed."""

import hashlib

import numpy as np
import pytest

from manyheads.runner.data.synthetic import Synthetic
from tests.in_process import build_dataset


def batch(data: Synthetic, *, train: bool, count: int = 8):
    return build_dataset(data, train=train).batch(np.arange(count), np.zeros(count, np.uint64))


@pytest.mark.parametrize("size", [1, 32, 64, 65, 224])
def test_sizes(size):
    data = Synthetic(image_size=size, num_classes=5, train_samples=13, val_samples=9)
    assert tuple(len(build_dataset(data, train=train)) for train in (True, False)) == (13, 9)
    images, targets = batch(data, train=True)
    assert images.shape == (8, 3, size, size)
    assert targets.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_the_images_never_change():
    data = Synthetic(image_size=4, num_classes=3, train_samples=8, val_samples=8)
    digests = [hashlib.sha256(batch(data, train=t)[0].numpy().tobytes()).hexdigest()[:16] for t in (True, False)]
    assert digests == ["c82b3d2c6027661e", "6c095f2d066e4c9f"]


def test_a_class_is_a_pattern_that_both_splits_share():
    data = Synthetic(image_size=8, num_classes=4, train_samples=400, val_samples=400)
    splits = [batch(data, train=train, count=400) for train in (True, False)]
    means = np.stack([[images[targets == c].double().mean(0).numpy() for c in range(4)] for images, targets in splits])
    distances = np.abs(means[0][:, None] - means[1][None]).mean(axis=(2, 3, 4))
    assert distances.argmin(axis=1).tolist() == [0, 1, 2, 3]
    assert not np.array_equal(splits[0][0], splits[1][0])
