"""Tensors on the CPU of the sizes that they have on a GPU, where an operation's outputs differ.

Each device has its own list of what autocast computes in fp32, and keeps something else of dropout. Sources:
https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference; torch's aten/src/ATen/autocast_mode.h, and
native/Dropout.cpp there.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, fallthrough_kernel

from manyheads.runner.parallel.rank.structure import map_tensors

# Computed in fp32 on GPUs, and on CPUs in the dtype of their inputs.
WIDENED = (
    *("acos", "asin", "cosh", "cosine_similarity", "dist", "erfinv", "exp", "expm1", "frobenius_norm.dim"),
    *("group_norm", "layer_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "linalg_vector_norm", "log"),
    *("log10", "log1p", "log2", "logsumexp", "native_layer_norm", "norm.Scalar", "norm.ScalarOpt_dim", "nuclear_norm"),
    *("nuclear_norm.dim", "pdist", "pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "reciprocal", "renorm"),
    *("rms_norm", "rsqrt", "sinh", "softplus", "tan", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d"),
)
# The same, but their inputs stay as they are; sums and outputs are in fp32.
SUMMED = ("cumprod", "cumsum", "log_softmax.int", "softmax.int", "sum", "sum.dim_IntList")
# Computed in fp32 on CPUs, and on GPUs in the dtype of their inputs.
KEPT = (
    *("adaptive_avg_pool3d", "adaptive_max_pool3d", "avg_pool3d", "max_pool3d", "reflection_pad1d", "reflection_pad2d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d"),
)


@contextmanager
def gpu_kernels() -> Iterator[None]:
    """A context in which operations on the CPU return and save tensors as large as on a GPU, of any values."""
    library = Library("aten", "IMPL")
    for name in WIDENED:
        library.impl(name, _without_autocast(name, _widened), "AutocastCPU")
    for name in SUMMED:
        library.impl(name, _without_autocast(name, _summed), "AutocastCPU")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # by older torch, of an override
        for name in KEPT:
            library.impl(name, fallthrough_kernel, "AutocastCPU")
    library.impl("dropout", _dropout, "AutogradCPU")
    library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")
    try:
        yield
    finally:
        del library  # which takes the kernels back


Given = tuple[tuple[Any, ...], Mapping[str, Any]]


def _without_autocast(name: str, changed: Callable[[Given], Given]) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*given: Any, **named: Any) -> Any:
        arguments, keywords = changed((given, named))
        with torch.autocast("cpu", enabled=False):
            return operation(*arguments, **keywords)

    return kernel


def _is_cast(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype is not torch.float64  # which autocast leaves alone


def _widened(given: Given) -> Given:
    return map_tensors(lambda tensor: tensor.float() if _is_cast(tensor) else tensor, given)


def _summed(given: Given) -> Given:
    arguments, named = given
    has_dtype = any(isinstance(value, torch.dtype) for value in (*arguments, *named.values()))
    return arguments, named if has_dtype or not _is_cast(arguments[0]) else {**named, "dtype": torch.float32}


def _dropout(inputs: Tensor, p: float, train: bool) -> Tensor:
    """Keeps a mask of one byte per number; on CPUs it has the inputs' dtype."""
    return torch.ops.aten.native_dropout.default(inputs, p, train)[0] if train and p else inputs


def _attention(*given: Any, **named: Any) -> Tensor:
    """On GPUs, kernels that keep no attention weights also drop some of them; on CPUs, they can't."""
    given = tuple(0.0 if isinstance(value, float) else value for value in given)  # dropout_p is the only positional one
    return torch.ops.aten.scaled_dot_product_attention.default.decompose(*given, **named)
