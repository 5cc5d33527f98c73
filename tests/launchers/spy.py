"""A model that tells what its rank finds when it is made, and then leaves all behind that a process can."""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from manyheads.runner.model.rank.small_cnn import SmallCNN


class Spy(SmallCNN):
    """small_cnn; rank 0 writes what it finds to the file ``report``."""

    kept: ClassVar[list[Any]] = []

    def __init__(self, *, num_classes: int, report: str, width: int = 2):
        super().__init__(num_classes=num_classes, width=width)
        if os.environ["RANK"] == "0":
            Path(report).write_text(json.dumps(found()))
        leave_traces(Path(report).with_suffix(f".{os.environ['RANK']}.open"))


def found() -> dict[str, Any]:
    """State of this process that another run in it might have changed."""
    return {
        "environment": dict(os.environ),
        "random": [random.random(), float(np.random.random()), torch.rand(()).item()],
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "files": sorted(os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.exists(entry.path)),
        "directory": os.getcwd(),
        "handler": str(signal.getsignal(signal.SIGUSR2)),
        "imported": "wave" in sys.modules,
        "has_logger": "manyheads.runner.logger.rank.tensorboard" in sys.modules,
        "kept": len(Spy.kept),
        "cuda": torch.cuda.is_initialized(),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "cores": sorted(os.sched_getaffinity(0)),
        "path": sys.path,
        "main": getattr(sys.modules["__main__"], "__file__", None),
    }


def leave_traces(path: Path) -> None:
    import wave  # noqa: F401

    os.environ["LEFT_BEHIND"] = "1"
    torch.set_float32_matmul_precision("medium")
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    Spy.kept.append(open(path, "w"))  # noqa: SIM115
    os.umask(0o077)
