"""Gradients of a rank's own parts of the weights."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from manyheads.runner.parallel.rank.model_parallel.own_parts import add_up, scale


@pytest.mark.parametrize("factor", [1.0, 0.3, 1e-4])
def test_scaling_all_gradients_at_once_gives_the_bits_of_one_by_one(factor):
    draw = torch.Generator().manual_seed(1)
    dtypes = (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float32)
    gradients = [torch.randn(5, 7, generator=draw).to(dtype) for dtype in dtypes]
    expected = [gradient * torch.tensor(factor).to(gradient.dtype) for gradient in gradients]
    scale(gradients, torch.tensor(factor))
    assert all(torch.equal(*pair) for pair in zip(gradients, expected, strict=True))
    scale([], torch.tensor(factor))


def parameters_of(gradients):
    parameters = [nn.Parameter(torch.ones(size)) for size in (2, 3, 1)]
    for parameter, value in zip(parameters, gradients, strict=True):
        parameter.grad = None if value is None else torch.full_like(parameter, value)
    return parameters


def test_a_gradient_that_one_rank_lacks_is_that_of_the_others(monkeypatch):
    """Else that rank alone would leave the weight as it was, and the ranks would not have the same weights any more."""
    ranks, sent = [(2.0, None, None), (4.0, 1.0, None)], list[torch.Tensor]()
    monkeypatch.setattr(dist, "all_reduce", lambda flat, group: sent.append(flat.clone()))
    for gradients in ranks:
        add_up(parameters_of(gradients), None)
    monkeypatch.setattr(dist, "all_reduce", lambda flat, group: flat.copy_(sum(sent)))
    for gradients in ranks:
        add_up(parameters := parameters_of(gradients), None, divisor=2)
        assert [None if p.grad is None else p.grad.tolist() for p in parameters] == [[3, 3], [0.5, 0.5, 0.5], None]
