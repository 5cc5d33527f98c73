"""What provenance.json says of a machine, found without importing torch: by each node's agent for its own."""

import platform
import socket
from importlib import metadata
from typing import TYPE_CHECKING

from manyheads.runner.machine import hardware

if TYPE_CHECKING:
    from manyheads.runner.run.json_types import MachineJson


def inventory() -> "MachineJson":
    """Host, system, processor, GPUs that ranks would see, and versions, under the names of provenance.json."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": {"model": hardware.cpu_model(), "cores": hardware.cpu_cores()},
        "devices": hardware.gpu_names(),
        "versions": {
            "python": platform.python_version(),
            "torch": _torch_version(),
            "cuda": hardware.torch_cuda_version(),
            "driver": hardware.driver_version() or None,
        },
    }


def _torch_version() -> str | None:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
