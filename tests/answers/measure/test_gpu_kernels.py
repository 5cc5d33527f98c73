"""Tensors on the CPU of the sizes that they have on a GPU."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from manyheads.runner.answers.measure.rank.counted import SavedTensors
from manyheads.runner.answers.measure.rank.gpu_kernels import gpu_kernels

SHAPE = (2, 4, 16, 8)
HALF, SINGLE, DOUBLE = torch.bfloat16, torch.float32, torch.float64
# By operation: its dtype for bfloat16 on CPUs, and on GPUs.
DTYPES = {
    "softmax": (lambda x: x.softmax(-1), HALF, SINGLE),
    "softmax of a dtype": (lambda x: torch.softmax(x, -1, dtype=DOUBLE), DOUBLE, DOUBLE),
    "log_softmax": (lambda x: functional.log_softmax(x, -1), HALF, SINGLE),
    "sum": (lambda x: x.sum(), HALF, SINGLE),
    "sum of a dimension": (lambda x: x.sum(-1), HALF, SINGLE),
    "of integers": (lambda x: x.long().sum(), torch.int64, torch.int64),
    "norm": (lambda x: torch.linalg.norm(x, dim=-1), HALF, SINGLE),
    "layer_norm": (lambda x: nn.LayerNorm(SHAPE[-1])(x), HALF, SINGLE),
    "rms_norm": (lambda x: functional.rms_norm(x, SHAPE[-1:]), HALF, SINGLE),
    "pow": (lambda x: x**2, HALF, SINGLE),
    "in fp64": (lambda x: x.double().exp(), DOUBLE, DOUBLE),
    "upsampling": (lambda x: functional.interpolate(x, scale_factor=2), HALF, SINGLE),
    "padding": (lambda x: functional.pad(x[0], (1, 1), mode="reflect"), SINGLE, HALF),
    "a product": (lambda x: x @ x.mT, HALF, HALF),
    "mean": (lambda x: x.mean(), HALF, HALF),
}


@pytest.mark.parametrize("name", DTYPES)
def test_autocast_computes_in_the_dtype_of_gpus(name):
    operation, on_cpus, on_gpus = DTYPES[name]
    inputs = torch.randn(SHAPE, requires_grad=True).to(HALF)
    with torch.autocast("cpu", HALF):
        before = operation(inputs).dtype
        with gpu_kernels():
            during = operation(inputs)
        after = operation(inputs).dtype
    assert (before, during.dtype, after) == (on_cpus, on_gpus, on_cpus)
    assert not during.requires_grad or during.sum().backward() is None


def kept(operation) -> int:
    """Bytes that it saves for the backward pass."""
    saved = SavedTensors()
    with saved.counting(nn.Identity()):
        result: Tensor = operation()
    assert saved.now == saved.most
    result.sum().backward()
    return saved.most


def test_dropout_keeps_a_byte_for_each_number():
    inputs = torch.ones(SHAPE, requires_grad=True)
    with gpu_kernels():
        assert kept(lambda: functional.dropout(inputs * 1.0, 0.1)) == inputs.numel()
        assert functional.dropout(inputs, 0.1, training=False) is not None
    assert kept(lambda: functional.dropout(inputs * 1.0, 0.1)) == inputs.nbytes


def test_attention_keeps_no_weights_even_if_it_drops_some():
    query = torch.ones(SHAPE, requires_grad=True)
    attention = functional.scaled_dot_product_attention
    without = kept(lambda: attention(query, query, query))
    with gpu_kernels():
        assert kept(lambda: attention(query, query, query, dropout_p=0.1)) == without
    assert kept(lambda: attention(query, query, query, dropout_p=0.1)) > without
