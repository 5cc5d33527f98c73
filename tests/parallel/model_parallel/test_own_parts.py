"""Gradients of a rank's own parts of the weights."""

import pytest
import torch

from manyheads.runner.parallel.rank.model_parallel.own_parts import scale


@pytest.mark.parametrize("factor", [1.0, 0.3, 1e-4])
def test_scaling_all_gradients_at_once_gives_the_bits_of_one_by_one(factor):
    draw = torch.Generator().manual_seed(1)
    dtypes = (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float32)
    gradients = [torch.randn(5, 7, generator=draw).to(dtype) for dtype in dtypes]
    expected = [gradient * torch.tensor(factor).to(gradient.dtype) for gradient in gradients]
    scale(gradients, torch.tensor(factor))
    assert all(torch.equal(*pair) for pair in zip(gradients, expected, strict=True))
    scale([], torch.tensor(factor))
