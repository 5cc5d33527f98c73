"""The default model."""

import pytest
import torch
from torch import nn

from manyheads.runner.model.small_cnn.rank import SmallCNN


@pytest.mark.parametrize("size", [8, 9, 32, 65])
def test_logits_for_images_of_any_size_from_8_on(size):
    assert SmallCNN(num_classes=5, width=2)(torch.zeros(2, 3, size, size)).shape == (2, 5)


def test_width_is_that_of_the_first_stage_and_doubles():
    convolutions = [layer for layer in SmallCNN(num_classes=5, width=4).modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [4, 8, 16]


def test_ranks_cannot_differ_by_statistics_or_draws():
    model = SmallCNN(num_classes=5, width=2)
    assert not list(model.buffers())
    assert not [layer for layer in model.modules() if isinstance(layer, nn.Dropout)]
