"""precision=bf16: autocast to bfloat16, whose range needs no gradient scaler; weights stay in fp32."""

from contextlib import AbstractContextManager

import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.precision.rank.precision import PrecisionPolicy


class BF16(PrecisionPolicy):
    """bfloat16 autocast, on NVIDIA Ampere and newer, and on CPUs."""

    products = "half"

    def __init__(self, parallel: Parallel):
        super().__init__(parallel)
        if self.device_type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise ConfigurationError.at(
                "precision", "bf16", ": this GPU has no bfloat16 units (Ampere has). Use precision=amp."
            )

    @property
    def summary(self) -> str:
        return "bfloat16 autocast"

    def autocast(self) -> AbstractContextManager:
        return torch.autocast(self.device_type, torch.bfloat16)
