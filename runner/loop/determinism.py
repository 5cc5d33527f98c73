"""trainer.deterministic: a GPU computes the same bits each time, and an operation that can't is refused.

Sources: https://docs.pytorch.org/docs/stable/notes/randomness.html,
https://docs.nvidia.com/cuda/cublas/#results-reproducibility.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from manyheads.runner.errors import ConfigurationError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
# Sums that switches add up, in an order of their own. Source: torchtitan's list of what may reorder NCCL's sums.
SWITCHES = "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE"
_HAS_NO_FORM = re.compile(r"(\S+) does not have a deterministic implementation")


def set_deterministic(wanted: bool) -> None:
    """Set it for the whole process, before it uses a GPU. If it is off, cuDNN tries its algorithms for the fastest."""
    if wanted:
        os.environ.setdefault(WORKSPACE, ":4096:8")  # read when cuBLAS starts
        for name in SWITCHES:
            os.environ.setdefault(name, "0")  # read when NCCL connects
    torch.use_deterministic_algorithms(wanted)
    torch.backends.cudnn.benchmark = not wanted


@contextmanager
def operations_named() -> Iterator[None]:
    """A context that raises ConfigurationError, which names the operation, for one without a deterministic form."""
    try:
        yield
    except RuntimeError as error:
        if match := _HAS_NO_FORM.search(str(error)):
            cause = f"torch {torch.__version__} has no deterministic implementation of {match[1]} on this device"
        elif WORKSPACE in str(error):
            cause = f"cuBLAS needs {WORKSPACE}=:4096:8 or :16:8, but it is {os.environ.get(WORKSPACE)!r}"
        else:
            raise
        remedy = "Set trainer.deterministic=false, or choose a model and a loss that do not use it."
        raise ConfigurationError.at("trainer.deterministic", True, f": {cause}. {remedy}") from error
