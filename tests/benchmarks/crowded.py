"""A small model where other programs keep every core busy, or none: the default against each fixed setting.

    python -m tests.benchmarks crowded          # both; a minute on two idle cores

Everything is in one process, in turn: what differs is only how many threads, or loader processes, an update has.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path

import torch
from torch import nn

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.build import build_unrecorded, join
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.machine import hardware
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.measure import Comparison, compare
from tests.benchmarks.neighbour import busy
from tests.in_process import ALONE, typed

STEPS, BATCH = 15, 100
LONGEST = 1.0  # seconds of a turn, in which threads that wait for each other beside busy programs make fewer updates
MODEL = ("model=mnist1d", "data=mnist1d", "optimizer=adam", "scheduler=constant", f"data.batch_size={BATCH}")
QUIET = ("trainer.device=cpu", "trainer.evaluate_every=0", "checkpoint.every=0", "logger=[]", "optimizer.lr=0.001")
DEFAULT, SCRIPT = "launcher.threads_per_rank=auto, the default", "a script, torch's own threads"
FEW = 1
LOADERS = (0, 1, 2)


def fixed(threads: int) -> str:
    """The name of what has this many threads."""
    return f"launcher.threads_per_rank={threads}"


def loading(processes: int) -> str:
    """The name of what has at most this many loader processes."""
    return f"data.num_workers={processes}"


def all_threads() -> int:
    return hardware.cpu_cores()


def per_update(update: Callable[[], object]) -> float:
    """The mean seconds of STEPS updates, or of those that begin within LONGEST seconds."""
    count, start = 0, time.perf_counter()
    while count < STEPS and time.perf_counter() - start < LONGEST:
        update()
        count += 1
    return (time.perf_counter() - start) / count


class Updates:
    """Updates of a trainer with its number of threads."""

    def __init__(self, trainer: Trainer, threads: int):
        self._trainer, self._threads, self._number = trainer, threads, 0
        self._batches = self._endless()

    def _endless(self) -> Iterator[Batch]:
        while True:
            yield from self._trainer.train.epoch(0, continues=False)

    def seconds(self) -> float:
        torch.set_num_threads(self._threads)
        self._trainer.update.enter_training()
        return per_update(self._update)

    def _update(self) -> None:
        self._trainer.update([next(self._batches)], number=self._number, wants_norm=False)
        self._number += 1


@contextmanager
def updates(folder: Path, *overrides: str) -> Iterator[Callable[[], float]]:
    """What makes a turn's updates with these overrides, and returns the seconds of one."""
    own = () if any(override.startswith("launcher.") for override in overrides) else ("launcher.threads_per_rank=auto",)
    run, where = typed(*MODEL, *QUIET, *own, *overrides), RunFolder(tempfile.mkdtemp(dir=folder))
    parallel = join(run, **ALONE._asdict())
    with closing(build_unrecorded(run, parallel, where, Heartbeat(None, ranks=1))) as trainer:
        yield Updates(trainer, torch.get_num_threads()).seconds


def script(net: nn.Module, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """The loop of a tutorial, with torch's own number of threads."""
    torch.set_num_threads(all_threads())
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=0.001)

    def update() -> None:
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss(net(inputs), targets).backward()
        optimizer.step()

    return per_update(update)


def threads(neighbours: int) -> Callable[[], Comparison]:
    """Measures the numbers of threads beside this many busy programs."""

    def measure(rounds: int = 20) -> Comparison:
        with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
            folder = Path(path)
            candidates = {fixed(count): [f"launcher.threads_per_rank={count}"] for count in (FEW, all_threads())}
            opened = {
                name: stack.enter_context(updates(folder, *given))
                for name, given in {**candidates, DEFAULT: []}.items()
            }
            batches = [(torch.randn(BATCH, 1, 40), torch.randint(10, (BATCH,))) for _ in range(20)]
            opened[SCRIPT] = partial(script, network(), cycle(batches))
            with busy(neighbours):
                return compare(f"an update of MNIST-1D's CNN, {_beside(neighbours)}", opened, rounds=rounds)

    measure.__module__, measure.__name__ = __name__, f"threads beside {neighbours}"
    return measure


def network() -> nn.Module:
    """The same network, as a script has it."""
    layers: list[nn.Module] = []
    for channels, size in ((1, 5), (25, 3), (25, 3)):
        layers += [nn.Conv1d(channels, 25, size, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(125, 10))


def loaders(neighbours: int) -> Callable[[], Comparison]:
    """Measures the numbers of loader processes beside this many busy programs."""

    def measure(rounds: int = 20) -> Comparison:
        with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
            opened = {
                loading(count): stack.enter_context(updates(Path(path), f"data.num_workers={count}"))
                for count in LOADERS
            }
            with busy(neighbours):
                return compare(f"an update of MNIST-1D's CNN, {_beside(neighbours)}", opened, rounds=rounds)

    measure.__module__, measure.__name__ = __name__, f"loaders beside {neighbours}"
    return measure


def _beside(neighbours: int) -> str:
    return f"beside {neighbours} busy programs" if neighbours else f"nothing else running ({os.cpu_count()} cores)"
