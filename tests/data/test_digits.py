"""The default data."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from manyheads.runner.data import digits
from manyheads.runner.data.digits import Digits, read, split_indices
from tests.in_process import build_dataset


@pytest.fixture(scope="module")
def reference() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits  # seconds, where it is needed

    return load_digits(return_X_y=True)


def test_pixels_and_labels_are_those_of_scikit_learn(reference):
    values, labels = read()
    assert np.array_equal(values, reference[0])
    assert np.array_equal(labels, reference[1])


def test_the_split_is_complete_disjoint_and_stratified(reference):
    labels = reference[1]
    train, val = (split_indices(labels, train=train) for train in (True, False))
    assert (len(train), len(val)) == (1438, 359)
    assert sorted([*train, *val]) == list(range(1797))
    for count, share in zip(np.bincount(labels), np.bincount(labels[val]), strict=True):
        assert abs(share - count * 359 / 1797) <= 1


def test_the_split_never_changes(reference):
    assert split_indices(reference[1], train=False)[:8].tolist() == [7, 11, 16, 18, 23, 29, 32, 36]


@pytest.mark.parametrize("size", [8, 32])
def test_images_are_the_digits_enlarged(reference, size):
    data = Digits(image_size=size)
    for train in (True, False):
        chosen = split_indices(reference[1], train=train)
        samples = build_dataset(data, train=train)
        images, targets = samples.batch(np.arange(len(samples)), np.zeros(len(samples), np.uint64))
        assert images.shape == (len(chosen), 3, size, size)
        assert np.array_equal(targets, reference[1][chosen])
        assert torch.equal(images[:, 0], images[:, 1])
        original = torch.from_numpy(reference[0][chosen].reshape(-1, 8, 8) * 255 // 16)
        means = images[:, 0].double().reshape(-1, 8, size // 8, 8, size // 8).mean(dim=(2, 4))
        if size == 8:
            assert torch.equal(means, original)
        else:
            assert (means - original).abs().mean() < 20  # of 255; interpolation smooths


def test_mean_and_deviation_are_those_of_the_training_part():
    samples = build_dataset(Digits(image_size=32), train=True)
    pixels = samples.images.double() / 255
    assert Digits.mean[0] == pytest.approx(pixels.mean().item(), abs=0.002)
    assert Digits.std[0] == pytest.approx(pixels.std().item(), abs=0.015)


def test_scikit_learn_itself_is_not_imported():
    code = f"import sys; from {digits.__name__} import read; read(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
