"""The same loop as users of other libraries write it, for those that are installed: pip install --group bench."""

import importlib.util
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

Loops = dict[str, Callable[[], float]]


def loops(model: Callable[[], nn.Module], loader: DataLoader, folder: Path) -> Loops:
    """Seconds of one epoch by name; each logs its loss, where the library has a way to."""
    found: Loops = {}
    if importlib.util.find_spec("lightning"):
        found["Lightning Fabric, no metrics"] = lambda: fabric(model, loader)
        found["Lightning Trainer, CSV"] = lambda: lightning(model, loader, folder)
    if importlib.util.find_spec("accelerate"):
        found["Accelerate, no metrics"] = lambda: accelerate(model, loader)
    return found


def epoch(net: nn.Module, optimizer: Any, batches: Any, backward: Callable[[torch.Tensor], object]) -> float:
    """The loop of both libraries that leave it to the user."""
    loss = nn.CrossEntropyLoss()
    start = time.perf_counter()
    for inputs, targets in batches:
        optimizer.zero_grad()
        backward(loss(net(inputs), targets))
        optimizer.step()
    return time.perf_counter() - start


def fabric(model: Callable[[], nn.Module], loader: DataLoader) -> float:
    from lightning.fabric import Fabric

    own = Fabric(accelerator="cpu", devices=1)
    net = model()
    net, optimizer = own.setup(net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))
    batches = own.setup_dataloaders(loader)
    return epoch(net, optimizer, batches, own.backward)


def accelerate(model: Callable[[], nn.Module], loader: DataLoader) -> float:
    from accelerate import Accelerator

    own = Accelerator(cpu=True)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    net, optimizer, batches = own.prepare(net, optimizer, loader)
    return epoch(net, optimizer, batches, own.backward)


def lightning(model: Callable[[], nn.Module], loader: DataLoader, folder: Path) -> float:
    """Its trainer with a CSV logger; the time of the epoch, without what comes before and after."""
    import lightning as pl
    from lightning.pytorch.loggers import CSVLogger

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning.*")

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = model(), nn.CrossEntropyLoss()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            value = self.loss(self.net(batch[0]), batch[1])
            self.log("loss", value)
            return value

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

        def on_train_epoch_start(self) -> None:
            self.started = time.perf_counter()

        def on_train_epoch_end(self) -> None:
            self.seconds = time.perf_counter() - self.started

    module = Module()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=CSVLogger(str(folder)),
        log_every_n_steps=10,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    return module.seconds
