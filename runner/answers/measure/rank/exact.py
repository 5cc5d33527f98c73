"""A rank that takes parity's steps in double precision, and counts casts to a lower precision in them."""

from typing import NoReturn

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.answers.measure.pace_task import LOSSY_FILE
from manyheads.runner.answers.measure.rank import probe
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder


class Casts(TorchDispatchMode):
    """Counts the casts in the context from double precision to a lower one."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == "_to_copy" and args[0].dtype == torch.float64:
            self.count += out.is_floating_point() and out.dtype != torch.float64
        return out


def main(path: str) -> NoReturn:
    """Be one rank of a run that takes steps in double precision. Ends the process. ``path``: the run folder."""
    worker.main(path, work=work)


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Take the steps that the folder's task asks for, and write the number of casts to LOSSY_FILE."""
    with Casts() as casts:
        probe.work(run, parallel, folder, heartbeat)
    if parallel.records:
        folder.write_json(folder.path / LOSSY_FILE, {"casts": casts.count})
