"""Strategies that take a model apart, on two ranks over gloo, beside loops of the same written by hand.

Six blocks of an MLP: small enough that what is done besides arithmetic shows, and as deep as units and stages need.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.multiprocessing import spawn  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from manyheads.runner.machine import hardware
from manyheads.runner.parallel.rank.parallel import Parallel
from tests.benchmarks.loop import OURS, Prebuilt, ours
from tests.benchmarks.measure import Comparison, compare
from tests.in_process import typed

RANKS, WIDTH, BLOCKS, STEPS, MICRO_BATCHES = 2, 128, 6, 60, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.down(torch.relu(self.up(inputs)))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 10))


def sgd(net: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, **options)


def fsdp() -> tuple[nn.Module, Any]:
    net = model()
    for block in net[:BLOCKS]:
        fully_shard(block)
    fully_shard(net)
    return net, sgd(net)


def zero1() -> tuple[nn.Module, Any]:
    net = DistributedDataParallel(model())
    return net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.01, momentum=0.9)


def tensor() -> tuple[nn.Module, Any]:
    net = model()
    plan = {f"{number}.up": ColwiseParallel() for number in range(BLOCKS)}
    plan |= {f"{number}.down": RowwiseParallel() for number in range(BLOCKS)}  # type: ignore[dict-item]
    parallelize_module(net, init_device_mesh("cpu", (RANKS,)), plan)  # type: ignore[arg-type]
    return net, sgd(net)


def plain(make: Callable[[], tuple[nn.Module, Any]], data: Prebuilt) -> float:
    """The loop of a tutorial, without metrics."""
    net, optimizer = make()
    loss = nn.CrossEntropyLoss()
    start = time.perf_counter()
    for inputs, targets in data.pairs:
        optimizer.zero_grad()
        loss(net(inputs), targets).backward()
        optimizer.step()
    return time.perf_counter() - start


def pipeline(rank: int, data: Prebuilt) -> float:
    """The same with torch's 1F1B; the stages are halves of a Sequential."""
    net = model()
    part = net[: BLOCKS // 2] if rank == 0 else net[BLOCKS // 2 :]
    stage = PipelineStage(part, rank, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, nn.CrossEntropyLoss())
    optimizer = sgd(part)
    start = time.perf_counter()
    for step in range(0, len(data.pairs), MICRO_BATCHES):
        inputs, targets = (torch.cat(each) for each in zip(*data.pairs[step : step + MICRO_BATCHES], strict=True))
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start


BY_HAND = {"fsdp": fsdp, "zero1": zero1, "tensor": tensor}


def by_hand(strategy: str) -> str:
    """The baseline's name."""
    return f"hand-written {strategy} loop"


def of(strategy: str) -> Callable[[], Comparison]:
    """Measures one strategy."""

    def measure(rounds: int = 5) -> Comparison:
        with tempfile.TemporaryDirectory() as folder:
            spawn(_rank, args=(folder, strategy, rounds), nprocs=RANKS)
            return Comparison(**json.loads((Path(folder) / "found.json").read_text()))

    measure.__name__ = strategy
    return measure


def _rank(rank: int, folder: str, strategy: str, rounds: int) -> None:
    torch.set_num_threads(hardware.cores_for_each(RANKS))
    os.environ["MANYHEADS_MEETING"] = f"{folder}/meet"
    frozen = typed(
        f"parallel={strategy}", f"launcher.nproc_per_node={RANKS}", "trainer.device=cpu", "data.batch_size=32"
    )
    place = {"rank": rank, "local_rank": rank, "world_size": RANKS, "device_type": "cpu"}
    parallel: Parallel = frozen.parallel.instantiate(**place)
    parallel.join()
    micro = MICRO_BATCHES if strategy == "pipeline" else 1
    data = Prebuilt(steps=STEPS, width=WIDTH, accumulation=micro)
    hand = (lambda: pipeline(rank, data)) if strategy == "pipeline" else (lambda: plain(BY_HAND[strategy], data))
    candidates = {
        by_hand(strategy): hand,
        OURS: lambda: ours(data, Path(folder), parallel, make=model),
    }
    found = compare(f"{STEPS} steps of {BLOCKS} blocks, parallel={strategy}, {RANKS} ranks", candidates, rounds=rounds)
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(asdict(found)))
    parallel.leave()


if __name__ == "__main__":
    for name in (*BY_HAND, "pipeline"):
        found = of(name)()
        print(found.name, {key: found.ratio(key, found.baseline) for key in found.seconds})
