"""A rank of a run on the fake GPU, built as a worker would build it, and some of its updates."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch import nn

from manyheads.runner.answers.measure.rank.fake_ddp import Replicated
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop import build
from manyheads.runner.loop.prepare import Prepared, prepare
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.run.run_folder import RunFolder
from tests.fake_gpu.cuda_module import NAME
from tests.fake_gpu.device import FakeGPU
from tests.fake_gpu.waits import Wait
from tests.in_process import ALONE, attempt, completed_for_here, config, small

UPDATES, FIRST = 4, 2  # the first ones create what later ones use, such as the optimizer's state


@contextmanager
def trainer_on(gpu: FakeGPU, folder: Path, *overrides: str, place: RankInfo = ALONE) -> Iterator[Trainer]:
    """The trainer of one rank of a run on this GPU; the other ranks do not exist."""
    with patch.object(hardware, "gpu_names", lambda: [NAME] * place.world_size), gpu.present(), _adapted():
        compose = config if "optimizer=several" in overrides else small  # which sets optimizer.lr
        run_config = completed_for_here(compose(*overrides, "trainer.device=cuda", "trainer.log_every=1000"))
        if "backend" in run_config["parallel"]:
            run_config["parallel"]["backend"] = "fake"
        Heartbeat.create(RunFolder(folder).heartbeat, ranks=place.world_size)
        parallel = build.join(RunConfig.of(run_config), **place._asdict())
        try:
            with closing(attempt(folder, run_config, parallel=parallel, place=place).trainer) as trainer:
                yield trainer
        finally:
            parallel.leave()


@contextmanager
def _adapted() -> Iterator[None]:
    """A context in which wrappers written in C++ work on tensors without values, and nothing is scattered."""
    scatter = patch.object(nn.DataParallel, "scatter", lambda model, inputs, keywords, _: ((inputs,), (keywords,)))
    replicated = patch.object(nn.parallel, "DistributedDataParallel", Replicated)
    with scatter, replicated, patch.object(build, "prepare", _prepared):
        yield


def _prepared(run: RunConfig, parallel: Parallel, **options: Any) -> Prepared:
    """A rank's parts, with the model on the GPU already: parameters cannot become fake ones and be the same objects."""
    prepared = prepare(run, parallel, **options)
    prepared.model.to(parallel.device)
    return prepared


def waits_of(folder: Path, *overrides: str, place: RankInfo = ALONE) -> list[Wait]:
    """The waits of updates of this run, after the first ones."""
    gpu = FakeGPU()
    with trainer_on(gpu, folder, *overrides, place=place) as trainer, ExitStack() as observed:
        for observer in trainer.observers:
            observer.start(trainer.progress)
            observed.enter_context(observer.training(UPDATES))
        trainer.update.enter_epoch(0)
        batches = trainer.updates(chain.from_iterable(map(trainer.train.epoch, count())))
        for update in islice(batches, FIRST):
            _make(trainer, update)
        with gpu.watched() as waits:
            for update in islice(batches, UPDATES - FIRST):
                _make(trainer, update)
    return waits


def _make(trainer: Trainer, batches: list[Batch]) -> None:
    """An update that counts, but is not logged."""
    for before_update in trainer._before_update:
        before_update(trainer.windows.clock.now)
    trainer.count(batches, trainer.update(batches, number=trainer.progress.step, wants_norm=True))
