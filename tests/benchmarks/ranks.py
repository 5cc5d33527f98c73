"""A step with two ranks over gloo: a tiny MLP, so that what is exchanged besides gradients shows."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing import spawn  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from manyheads.runner.machine import hardware
from manyheads.runner.parallel.rank.parallel import Parallel
from tests.benchmarks.loop import OURS, Prebuilt, by_hand, model, ours
from tests.benchmarks.measure import Comparison, compare
from tests.in_process import typed

RANKS, STEPS = 2, 1000  # of a turn
PLAIN, TUTORIAL = "plain DDP loop, no metrics", "tutorial loop: barrier, 3 all-reduces, 3 .item()"


def tutorial(data: Prebuilt) -> float:
    """As most tutorials have it: loss and two accuracies averaged over the ranks, and read, in every step."""
    net, loss = DistributedDataParallel(model()), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    totals = [0.0, 0.0, 0.0]
    start = time.perf_counter()
    for inputs, targets in data.pairs:
        outputs = net(inputs)
        value = loss(outputs, targets)
        best = outputs.topk(5, dim=1).indices == targets[:, None]
        measured = [value.detach().clone(), best[:, :1].float().sum() / len(targets), best.float().sum() / len(targets)]
        dist.barrier()
        for index, each in enumerate(measured):
            dist.all_reduce(each)
            totals[index] += each.item() / RANKS
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return time.perf_counter() - start


def measure(rounds: int = 20) -> Comparison:
    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, args=(folder, rounds), nprocs=RANKS)
        return Comparison(**json.loads((Path(folder) / "found.json").read_text()))


def _rank(rank: int, folder: str, rounds: int) -> None:
    torch.set_num_threads(hardware.cores_for_each(RANKS))
    place = {"rank": rank, "local_rank": rank, "world_size": RANKS, "device_type": "cpu"}
    parallel: Parallel = typed("parallel=ddp").parallel.instantiate(**place)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    data = Prebuilt(steps=STEPS)
    candidates: dict[str, Callable[[], float]] = {
        PLAIN: lambda: by_hand(DistributedDataParallel(model()), data.pairs),
        OURS: lambda: ours(data, Path(folder), parallel),
        TUTORIAL: lambda: tutorial(data),
    }
    found = compare(f"{len(data.pairs)} steps of a tiny MLP, {RANKS} ranks over gloo", candidates, rounds=rounds)
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(asdict(found)))
    dist.destroy_process_group()
    os._exit(0)  # as ranks of a run do: torch 2.15 may abort when the interpreter takes down its wrappers of models
