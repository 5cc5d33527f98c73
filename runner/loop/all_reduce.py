"""A rank that measures an all-reduce instead of training, for the doctor: ``-m manyheads.runner.loop.all_reduce``."""

import os
import sys
import time
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from manyheads.runner.machine import hardware
from manyheads.runner.machine.process import die_with_parent
from manyheads.runner.run.heartbeat import FINISHED, Heartbeat
from manyheads.runner.run.rank_info import read_rank_info
from manyheads.runner.run.run_folder import RunFolder

SECONDS = 2.5  # for each of the two sizes
SIZES = {"small": 1, "large": 4 << 20}  # of fp32: 4 bytes, 16 MB
MEASURED = "all_reduce.json"


def main(path: str) -> NoReturn:
    """Reduce a small and a large tensor over all ranks for some seconds; rank 0 writes how long one takes."""
    die_with_parent()
    folder, rank_info = RunFolder(path), read_rank_info()
    heartbeat = Heartbeat.of_rank(rank_info, folder.heartbeat)
    heartbeat.enter()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(rank_info.local_rank // hardware.ranks_per_gpu())
    dist.init_process_group(backend, timeout=timedelta(seconds=30))
    device = "cuda" if backend == "nccl" else "cpu"
    measured: dict[str, float | str] = {name: seconds(torch.ones(size, device=device)) for name, size in SIZES.items()}
    if rank_info.rank == 0:
        measured |= {"bytes": 4 * SIZES["large"], "backend": backend, "ranks": rank_info.world_size}
        folder.write_json(folder.logs / MEASURED, measured)
    dist.destroy_process_group()
    heartbeat.leave(FINISHED)
    os._exit(0)


def seconds(values: torch.Tensor) -> float:
    """Seconds of one all-reduce of ``values``: the median over some SECONDS."""
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    is_unfinished = torch.ones(1, device=values.device)
    while is_unfinished.item():
        for _ in range(3):
            began = time.perf_counter()
            dist.all_reduce(values)
            if values.is_cuda:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - began)
            values.fill_(1)
        is_unfinished.fill_(time.perf_counter() < end)
        dist.all_reduce(is_unfinished, op=dist.ReduceOp.MIN)
    return sorted(taken)[len(taken) // 2]


if __name__ == "__main__":
    main(sys.argv[1])
