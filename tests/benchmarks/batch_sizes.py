"""What other libraries' finders of a batch size answer for small_cnn on the digits.

``python -m tests.benchmarks.batch_sizes`` prints a table. Lightning's starts from a batch of 64, Accelerate's from the
whole data set, each in a process of its own on the CPU. For those that are installed: pip install --group bench.
"""

import importlib.util
import logging
import multiprocessing
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from manyheads.runner.model.rank.small_cnn import SmallCNN

BATCH, WIDTH = 64, 32
Finder = Callable[[TensorDataset], int]


def digits() -> TensorDataset:
    images, targets = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).float().reshape(-1, 1, 8, 8).expand(-1, 3, -1, -1) / 16
    return TensorDataset(pixels.contiguous(), torch.from_numpy(targets))


def model() -> nn.Module:
    torch.manual_seed(0)
    return SmallCNN(num_classes=10, width=WIDTH)


def lightning(mode: str) -> Finder:
    """Lightning's ``Tuner.scale_batch_size`` with its own settings."""

    def find(data: TensorDataset) -> int:
        import lightning as pl
        from lightning.pytorch.tuner import Tuner

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore")

        class Module(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net, self.loss, self.batch_size = model(), nn.CrossEntropyLoss(), BATCH

            def training_step(self, batch: Any, _: int) -> torch.Tensor:
                value: torch.Tensor = self.loss(self.net(batch[0]), batch[1])
                return value

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

            def train_dataloader(self) -> DataLoader:
                return DataLoader(data, self.batch_size, shuffle=True)

        silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, enable_model_summary=False, **silent)
        found = Tuner(trainer).scale_batch_size(Module(), mode=mode, init_val=BATCH)
        assert found is not None
        return found

    return find


def accelerate(data: TensorDataset) -> int:
    """Accelerate's ``find_executable_batch_size`` around an epoch, beginning with the whole data set at once."""
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=len(data))
    def train(batch_size: int) -> int:
        net, loss = model(), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        for inputs, targets in DataLoader(data, batch_size, shuffle=True):
            optimizer.zero_grad()
            loss(net(inputs), targets).backward()
            optimizer.step()
        return batch_size

    found: int = train()
    return found


def seconds_per_sample(size: int, data: TensorDataset) -> float:
    """Of an epoch with batches of this size, after one that is not timed."""
    net, loss = model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        start = time.perf_counter()
        for inputs, targets in DataLoader(data, size, shuffle=True):
            optimizer.zero_grad()
            loss(net(inputs), targets).backward()
            optimizer.step()
        seconds = time.perf_counter() - start
    return seconds / len(data)


def measure(name: str, find: Finder) -> None:
    """A row of the table, in a process of its own."""
    data = digits()
    own = seconds_per_sample(BATCH, data)
    start = time.perf_counter()
    found = find(data)
    took = time.perf_counter() - start
    gain = own / seconds_per_sample(found, data)
    print(f"| {name} | {found} | {took:.1f} s | {gain:.1f} |", flush=True)


def main() -> None:
    finders: dict[str, Finder] = {}
    if importlib.util.find_spec("lightning"):
        finders |= {f"Lightning, {mode}": lightning(mode) for mode in ("power", "binsearch")}
    if importlib.util.find_spec("accelerate"):
        finders["Accelerate"] = accelerate
    print(f"| finder | batch, instead of {BATCH} | time | samples per second, of those with {BATCH} |")
    print("|---|---|---|---|", flush=True)
    for name, find in finders.items():
        process = multiprocessing.get_context("fork").Process(target=measure, args=(name, find))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
