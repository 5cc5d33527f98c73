"""The loop over prebuilt batches: a tiny MLP, so that everything but the arithmetic weighs as much as it can."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from manyheads.runner.config.lookup import read_option
from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.order import Shuffle
from manyheads.runner.data.rank.batches import Batch, BatchDataset
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.in_memory import TableDataset
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.sampler import TrainingSampler
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.data.samples import TableArrays
from manyheads.runner.logger.logger import LoggedRun
from manyheads.runner.logger.rank.tensorboard import TensorBoard
from manyheads.runner.logger.terminal import Display
from manyheads.runner.loop.monitor import Monitor
from manyheads.runner.loop.observers.breakdown import Breakdown
from manyheads.runner.loop.observers.garbage import Garbage
from manyheads.runner.loop.observers.rank_times import RankTimes
from manyheads.runner.loop.observers.sample_record import SampleRecord
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import Update, Wrapped
from manyheads.runner.machine import hardware
from manyheads.runner.metrics.metric import build_metrics
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.single import Single
from manyheads.runner.precision.rank.fp32 import FP32
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.writer import CSVWriter, NullWriter
from manyheads.runner.scheduler.rank.schedules import Constant
from manyheads.runner.task.rank.classification import Classification
from manyheads.runner.task.rank.task import Task
from tests.benchmarks import peers
from tests.benchmarks.measure import Comparison, compare

STEPS, BATCH, WIDTH = 2000, 32, 64
BARE, OVER_LOADER = "hand-written loop, no metrics", "hand-written loop over a DataLoader, no metrics"
FUSED = "the same with our optimizer"
OURS, UNWATCHED = "manyheads, metrics + CSV + TensorBoard", "the same, without the time breakdown"
UNRECORDED = "the same, without the record of samples"
AUTOMATIC = "the same, garbage collected when Python decides"
PLACE = {"rank": 0, "local_rank": 0, "world_size": 1, "device_type": "cpu"}


class Prebuilt:
    """A loader's place: the same batches every time, ``accumulation`` of them in an update."""

    def __init__(self, *, steps: int = STEPS, batch: int = BATCH, width: int = WIDTH, accumulation: int = 1) -> None:
        self.updates, self.accumulation, self.rounding = steps, accumulation, 0.0
        generator = torch.Generator().manual_seed(0)
        pairs = [
            (torch.randn(batch, width, generator=generator), torch.randint(10, (batch,), generator=generator))
            for _ in range(20)
        ]
        self.pairs = [pairs[step % len(pairs)] for step in range(steps * accumulation)]
        weight = 1 / accumulation
        self.samples = steps * accumulation * batch
        ids = np.random.RandomState(0).permutation(self.samples).reshape(-1, batch)
        self.batches = [
            Batch(pair, batch, weight, inputs=pair[0], counted=batch, ids=own)
            for pair, own in zip(self.pairs, ids, strict=True)
        ]

    def epoch(self, epoch: int, first_update: int = 0, *, continues: bool = False) -> Iterator[Batch]:
        return iter(self.batches)

    def example(self) -> Batch:
        return self.batches[0]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def by_hand(net: nn.Module, batches: Iterable[Any], *, fused: bool | None = None) -> float:
    """The plain loop of every tutorial, without metrics, logs or anything. ``fused``: of the optimizer."""
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=fused)
    start = time.perf_counter()
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss(net(inputs), targets).backward()
        optimizer.step()
    return time.perf_counter() - start


def ours(
    data: Prebuilt | Loader,
    folder: Path,
    parallel: Parallel | None = None,
    *,
    watched: bool = True,
    collects: bool = True,
    records: bool = True,
    make: Callable[[], nn.Module] = model,
    metrics: Sequence[str] = (),
) -> float:
    """The trainer with metrics, CSV and TensorBoard, logging every 10 updates. ``parallel``: joined; else one rank."""
    parallel = parallel or Single(**PLACE)  # type: ignore[arg-type]
    parallel.example = data.example
    run = RunFolder(tempfile.mkdtemp(dir=folder))
    net = parallel.place(make())
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)  # as conf/optimizer has it
    optimizer = parallel.wrap_optimizer(sgd, net)
    task = Classification(loss=nn.CrossEntropyLoss(), reduction="auto")
    scores = Scores(task, build_metrics({name: read_option("metrics", name)[name] for name in metrics}, task, 10))
    columns = {split: scores.names(split) for split in ("train", "val")}
    board = TensorBoard()
    board.start(LoggedRun(run.path, {}, 0, scores.names("train")))
    recorder = CSVWriter(run, **columns, position={}, loggers=[board]) if parallel.rank == 0 else NullWriter()
    update = Update(
        Wrapped(parallel.wrap_model(net), optimizer, [name for name, _ in net.named_parameters()]),
        scores=scores,
        schedule=Constant(optimizer, updates_per_epoch=data.updates, total_updates=data.updates, warmup_epochs=0),
        parallel=parallel,
        precision=FP32(parallel),
    )
    reporter = Reporter(recorder, Display(), parallel, scores, epochs=1)
    settings = TrainSettings(1, data.updates, data.updates, 0, getattr(data, "accumulation", 1), 10)
    observers = [
        *([SampleRecord(reporter, parallel, Taken(data.samples, marks=True))] if records else []),
        *([Breakdown.of(update)] if watched else []),
        *([RankTimes.of(parallel, reporter.display.say)] if parallel.world_size > 1 else []),
        *([Garbage()] if collects else []),
    ]
    trainer = Trainer(
        update,
        Loaders(data, data),  # type: ignore[arg-type]
        settings=settings,
        reporter=reporter,
        heartbeat=Heartbeat.create(run.heartbeat, ranks=1),
        monitor=Monitor(scores, update.schedule, settings.ending, readers=(), say=reporter.display.say),
        observers=observers,
    )
    update.prime(data.example)
    start = time.perf_counter()
    trainer.fit(lambda **_: None, due_after_step=lambda _: False)
    seconds = time.perf_counter() - start
    recorder.close()
    return seconds


def with_loader(rounds: int = 7, *, threads: int = 1) -> Comparison:
    """From data set to update, shuffled; every candidate over a loader of its own, as its users write it."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(STEPS * BATCH, WIDTH, generator=generator)
    targets = torch.randint(10, (STEPS * BATCH,), generator=generator)
    division = GlobalBatches(len(targets), batch_size=BATCH, drop_last=True)
    order = TrainingSampler(Shuffle(len(targets), seed=1), division, rank=0, world_size=1, accumulation=1)
    rows = TableDataset(TableArrays(inputs.numpy(), targets.numpy()))  # as data sets in memory are
    batches = BatchDataset(rows, seed=1, on_corrupt="error", replace_corrupt=True)
    input_transform = InputTransform(torch.device("cpu"), torch.float32, False, (0.0,), (1.0,))
    loader = Loader(batches, order, task=Task(), input_transform=input_transform, num_workers=0)
    plain = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True, drop_last=True)
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[str, Callable[[], float]] = {
            OVER_LOADER: lambda: by_hand(model(), plain),
            OURS: lambda: ours(loader, Path(folder)),
        }
        if threads == 1:
            candidates |= peers.loops(model, plain, Path(folder))
        return compare(f"{STEPS} steps of a tiny MLP with its loader, {_threads(threads)}", candidates, rounds=rounds)


def measure(rounds: int = 15, *, threads: int = 1) -> Comparison:
    torch.set_num_threads(threads)
    data = Prebuilt()
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[str, Callable[[], float]] = {
            BARE: lambda: by_hand(model(), data.pairs),
            FUSED: lambda: by_hand(model(), data.pairs, fused=True),
            OURS: lambda: ours(data, Path(folder)),
        }
        parts: dict[str, Callable[[], float]] = {
            UNWATCHED: lambda: ours(data, Path(folder), watched=False),
            UNRECORDED: lambda: ours(data, Path(folder), records=False),
            AUTOMATIC: lambda: ours(data, Path(folder), collects=False),
        }
        if threads == 1:  # more of them change nothing about these
            candidates |= parts
        return compare(f"{STEPS} steps of a tiny MLP, {_threads(threads)}", candidates, rounds=rounds)


def by_default(rounds: int = 15) -> Comparison:
    """With as many threads as torch and ``launcher.threads_per_rank=auto`` choose."""
    return measure(rounds, threads=hardware.cpu_cores())


def with_loader_by_default(rounds: int = 7) -> Comparison:
    return with_loader(rounds, threads=hardware.cpu_cores())


def _threads(count: int) -> str:
    return f"{count} CPU thread{'s' * (count > 1)}"
