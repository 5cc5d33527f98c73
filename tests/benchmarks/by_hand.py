"""A script as written without this project: shuffled batches of tensors in memory, torch's own threads and settings.

Model and optimizer are those of the config, so that both sides compute the same.

``python tests/benchmarks/by_hand.py <epochs> <override> ...``, or under torchrun. The overrides name model and data,
with the batch of one rank. Prints the seconds of an update in the median epoch, without the first.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.in_process import config, opened


def main() -> None:
    threads = torch.get_num_threads()
    epochs, overrides = int(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "run", config(*overrides)) as trainer:
        net, optimizer = trainer.update.model.train(), trainer.update.optimizer
        batches = list(trainer.train.epoch(0))
    torch.set_num_threads(threads)
    inputs = torch.cat([batch.inputs for batch in batches])
    targets = torch.cat([batch.content[1] for batch in batches])
    size = len(batches[0].content[1])
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net)
    loss = nn.CrossEntropyLoss()
    seconds = [epoch(net, optimizer, loss, inputs, targets, size=size) for _ in range(epochs)]
    if ranks == 1 or dist.get_rank() == 0:
        print(statistics.median(seconds[1:]) / len(batches), flush=True)
    os._exit(0)  # torch 2.15 may abort when the interpreter ends after a process group


def epoch(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    size: int,
) -> float:
    """Its seconds."""
    start = time.perf_counter()
    for chosen in torch.randperm(len(targets)).split(size):
        optimizer.zero_grad()
        outputs = net(inputs[chosen])
        if targets.dim() > 1:
            outputs = outputs.flatten(0, 1)
        loss(outputs, targets[chosen].flatten()).backward()
        optimizer.step()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
