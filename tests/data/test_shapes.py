"""Drawn shapes: their masks, their labels, the same in every process."""

import numpy as np

from manyheads.runner.data.shapes import KINDS, Shapes, ShapesMultilabel


def made(kind=Shapes):
    return kind(image_size=32, train_samples=40, val_samples=20)


def test_splits_are_made_anew_and_alike():
    splits = [made().split(train=True), made().split(train=False), made().test()]
    assert [len(each.images) for each in splits] == [40, 20, 20]
    assert np.array_equal(splits[0].images, made().split(train=True).images)
    assert not np.array_equal(splits[1].images, splits[2].images)


def test_a_mask_says_where_a_shape_is():
    samples = made().split(train=True)
    assert {*np.unique(samples.targets)} == {0, 1, 2, 3, 255}
    brightness = samples.images.mean(1)
    inside = (samples.targets > 0) & (samples.targets < 255)
    assert brightness[inside].mean() > 2 * brightness[samples.targets == 0].mean()
    assert 0.02 < (samples.targets == 255).mean() < 0.2


def test_labels_are_the_kinds_that_a_mask_has():
    masks, labels = made().split(train=True).targets, made(ShapesMultilabel).split(train=True).targets
    assert labels.shape == (40, len(KINDS))
    for mask, own in zip(masks, labels, strict=True):
        assert [kind in mask for kind in (1, 2, 3)] == own.astype(bool).tolist()
    assert 0.2 < labels.mean() < 0.8
