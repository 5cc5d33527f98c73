"""precision=fp64: double precision, in which strategies can be shown to compute the same."""

import torch

from manyheads.runner.precision.rank.precision import PrecisionPolicy


class FP64(PrecisionPolicy):
    """Weights, images and gradients in double precision."""

    dtype, products = torch.float64, "fp64"
