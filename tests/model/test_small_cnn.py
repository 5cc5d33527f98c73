"""The default model."""

import re

import pytest
import torch
from torch import nn

from manyheads.runner.model.rank.small_cnn import QuarterMeans, SmallCNN


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("side", range(1, 10))
def test_its_pooling_is_torch_s_adaptive_one_to_the_bit(side, dtype):
    """torch's own has no deterministic form on GPUs, so that trainer.deterministic=true would refuse the model."""
    images = torch.randn(3, 5, side, side, dtype=dtype, requires_grad=True)
    adaptive, own = nn.functional.adaptive_avg_pool2d(images, 2), QuarterMeans()(images)
    assert torch.equal(own, adaptive)
    given = torch.randn_like(own)
    assert torch.equal(*(torch.autograd.grad(each, images, given)[0] for each in (own, adaptive)))


def test_no_layer_without_a_deterministic_form():
    """Of those that torch 2.6 to 2.15 list for torch.use_deterministic_algorithms."""
    named = re.compile(r"AvgPool3d|AdaptiveAvgPool|AdaptiveMaxPool|FractionalMaxPool|MaxUnpool|Upsample|ReflectionPad")
    model = SmallCNN(num_classes=5, width=2)
    assert not [layer for layer in model.modules() if named.match(type(layer).__name__)]
