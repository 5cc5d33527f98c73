"""A script as written without this project: shuffled batches of tensors, torch's own threads and settings.

Model and optimizer are those of the config, so that both sides compute the same.

``python tests/benchmarks/by_hand.py <epochs> <override> ...``, or under torchrun. The overrides name model and data,
with the batch of one rank; if these have loader processes, the script has a DataLoader with as many. Prints the seconds
of an update in the median epoch, without the first.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from tests.in_process import config, opened


def main() -> None:
    threads = torch.get_num_threads()
    epochs, overrides = int(sys.argv[1]), sys.argv[2:]
    written = config(*overrides)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "run", written) as trainer:
        net, optimizer = trainer.update.model.train(), trainer.update.optimizer
        batches = list(trainer.train.epoch(0))
    torch.set_num_threads(threads)
    held = TensorDataset(torch.cat([each.inputs for each in batches]), torch.cat([each.content[1] for each in batches]))
    size, workers = len(batches[0].content[1]), written["data"]["num_workers"]
    shuffled: Iterable[list[Tensor]] = (
        DataLoader(held, size, shuffle=True, num_workers=workers, persistent_workers=True)
        if workers
        else InMemory(*held.tensors, size)
    )
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net)
    loss = nn.CrossEntropyLoss()
    seconds = [epoch(net, optimizer, loss, shuffled) for _ in range(epochs)]
    if ranks == 1 or dist.get_rank() == 0:
        print(statistics.median(seconds[1:]) / len(batches), flush=True)
    del shuffled  # and with it the loader processes
    os._exit(0)  # torch 2.15 may abort when the interpreter ends after a process group


class InMemory:
    """Batches of tensors, shuffled anew in each epoch."""

    def __init__(self, inputs: Tensor, targets: Tensor, size: int):
        self.inputs, self.targets, self.size = inputs, targets, size

    def __iter__(self) -> Iterator[list[Tensor]]:
        for chosen in torch.randperm(len(self.targets)).split(self.size):
            yield [self.inputs[chosen], self.targets[chosen]]


def epoch(
    net: nn.Module, optimizer: torch.optim.Optimizer, loss: nn.Module, batches: Iterable[Sequence[Tensor]]
) -> float:
    """Its seconds."""
    start = time.perf_counter()
    for inputs, targets in batches:
        optimizer.zero_grad()
        outputs = net(inputs)
        if targets.dim() > 1:
            outputs = outputs.flatten(0, 1)
        loss(outputs, targets.flatten()).backward()
        optimizer.step()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
