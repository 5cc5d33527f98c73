"""precision=tf32: single precision whose products use TF32 matrix units.

Source: https://pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere.
"""

import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.precision.rank.precision import PrecisionPolicy


class TF32(PrecisionPolicy):
    """TF32 on Ampere and newer; other GPUs would silently use fp32, so they are refused."""

    tf32, products = True, "tf32"

    def __init__(self, parallel: Parallel):
        if torch.cuda.get_device_capability(parallel.device)[0] < 8:
            raise ConfigurationError.at(
                "precision", "tf32", ": this GPU has no TF32 units (Ampere has). Use precision=fp32."
            )
        super().__init__(parallel)

    @property
    def summary(self) -> str:
        return "float32 with TF32 products"
