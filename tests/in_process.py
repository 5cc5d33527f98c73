"""A real rank in the test's own process: composed from conf/, checked, built as a worker would build it."""

import csv
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.config.freeze import checked, completed
from manyheads.runner.data.data_option import Data
from manyheads.runner.data.rank.splits import as_dataset
from manyheads.runner.data.samples import Dataset
from manyheads.runner.loop import build
from manyheads.runner.loop.guards.guard import Restart
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.columns import TRAINING
from tests.composing import composed

# 40 updates in two epochs of 20, a second of work; two log intervals in an epoch and a shorter third one.
SMALL = (
    "data=synthetic",
    "data.image_size=8",
    "data.num_classes=3",
    "data.train_samples=160",
    "data.val_samples=37",
    "data.batch_size=8",
    "data.num_workers=0",
    "model.width=2",
    "optimizer.lr=0.05",
    "trainer.epochs=2",
    "trainer.log_every=8",
    "trainer.device=cpu",
    "launcher.threads_per_rank=1",
)
ALONE = RankInfo(rank=0, local_rank=0, world_size=1)
TIMINGS = (
    *("time", "started", "train_seconds", "val_seconds", "samples_per_second", "data_fraction", "peak_memory_mb"),
    *(f"{part}_seconds" for part in (*TRAINING, "checkpoint")),
)


def config(*overrides: str) -> dict[str, Any]:
    """The run config that ``python run.py <overrides>`` would freeze, in its written form, to be changed at will."""
    return dict(typed(*overrides).written)


def typed(*overrides: str) -> RunConfig:
    """The run config that ``python run.py <overrides>`` would freeze."""
    return checked(composed(*overrides))


def completed_for_here(config: dict[str, Any]) -> dict[str, Any]:
    """The written form of a config with every ``auto`` resolved for this machine. Raises ConfigurationError."""
    return dict(completed(RunConfig.of(config)).written)


def small(*overrides: str) -> dict[str, Any]:
    """The same for a run of a second; ``overrides`` may change what SMALL says."""
    kept = [o for o in SMALL if not any(o.split("=")[0] == other.split("=")[0].lstrip("+") for other in overrides)]
    if any(other.startswith("data=") for other in overrides):
        kept = [o for o in kept if not o.startswith("data.") or o.startswith(("data.batch_size", "data.num_workers"))]
    if any(other.startswith("model=") for other in overrides):
        kept = [o for o in kept if not o.startswith("model.")]
    return config(*kept, *overrides)


def attempt(
    path: Path,
    config: dict[str, Any],
    *,
    state: dict[str, Any] | None = None,
    place: RankInfo = ALONE,
    parallel: Parallel | None = None,
) -> Session:
    """One rank with everything in place, in the run folder ``path``. ``state``: as for build.build.

    ``parallel``: the rank's strategy if it has joined the others already.
    """
    folder = RunFolder(path)
    if place.rank == 0:
        folder.write_config(config)
        Heartbeat.create(folder.heartbeat, ranks=place.world_size)
    run = RunConfig.of(config)
    parallel = parallel or build.join(run, **place._asdict())
    parallel.gather("the folder is there")
    heartbeat = Heartbeat(folder.heartbeat, rank=place.rank)
    checkpoints = CheckpointStore.of(folder, run.checkpoint)
    trainer = build.build(run, parallel, folder, heartbeat, state)
    return Session(trainer, run, checkpoints=checkpoints, folder=folder)


@contextmanager
def opened(path: Path, config: dict[str, Any]) -> Iterator[Trainer]:
    """A trainer to call by hand; ``Trainer.fit`` would close its files itself."""
    trainer = attempt(path, config).trainer
    try:
        yield trainer
    finally:
        trainer.close()


def train(path: Path, config: dict[str, Any], *, place: RankInfo = ALONE) -> Session:
    """A whole run, the rest of the one that ``path`` holds, or of the one that ``checkpoint.resume`` names."""
    memory: dict[str, Any] = {}
    parallel = None
    while True:  # as in session.work, but for the session that is returned
        state = CheckpointStore(RunFolder(path), every=0, keep=0).last(otherwise=config["checkpoint"]["resume"])
        run = attempt(path, config, state=state, place=place, parallel=parallel)
        try:
            with closing(run.trainer):
                run.train(seed=config["seed"], state=state, memory=memory)
            return run
        except Restart as restart:
            memory, parallel = restart.memory, run.parallel


def build_dataset(data: Data, *, train: bool) -> Dataset:
    """The data set of one of an option's own splits, as a rank loads it."""
    return as_dataset(data.split(train=train))


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    model = trainer.update.parallel.unwrap(trainer.update.model)
    return {name: w.clone() for name, w in model.state_dict().items()}


def rows(path: Path, *, without: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The rows of a CSV file, some columns left out."""
    with open(path, newline="") as file:
        return [{k: v for k, v in row.items() if k not in without} for row in csv.DictReader(file)]


def ranks(config: dict[str, Any]) -> int:
    """The number of ranks of a run config on all machines."""
    return RunConfig.of(config).launcher.ranks
