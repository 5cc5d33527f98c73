"""A row by the project's own trainer, built from conf/ as each rank builds it."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from manyheads.runner.loop.trainer import Trainer
from tests.benchmarks.gpu.case import NO_MODEL, PHOTOS, WARM_UP, Case, Measured, Setup
from tests.benchmarks.gpu.device import Stopwatch
from tests.benchmarks.gpu.ready import CLASSES, ReadyData
from tests.benchmarks.gpu.work import Traffic
from tests.in_process import attempt, config


def measure(case: Case, setup: Setup) -> Measured:
    """Raises what a run would end with."""
    trainer = attempt(setup.scratch / "run", config(*overrides(case, setup))).trainer
    try:
        return loading(trainer, case, setup) if case.model == NO_MODEL else training(trainer, case, setup)
    finally:
        trainer.close()


def overrides(case: Case, setup: Setup) -> list[str]:
    """The command line after ``python run.py``."""
    steps = setup.end(case) + 1  # what ends an epoch comes after the clock has stopped
    samples = setup.batch_size * (steps + 1)
    ready = ["data=custom", f"data._target_={ReadyData.__module__}.ReadyData", f"+data.samples={samples}"]
    ready += [f"+data.batch={setup.batch_size}", f"+data.image_size={setup.image_size}"]
    photos = ["data=imagefolder", f"data.root={setup.photos}", f"data.image_size={setup.image_size}"]
    model = "small_cnn" if case.model == NO_MODEL else case.model
    return [
        *(photos if case.data == PHOTOS else ready),
        f"data.batch_size={setup.batch_size}",
        f"data.num_workers={setup.workers(case)}",
        f"model={model}",
        f"model.num_classes={CLASSES}",
        f"precision={case.precision}",
        f"trainer.channels_last={case.channels_last}",
        f"trainer.compile={'default' if case.compile else 'none'}",
        f"trainer.device={setup.device}",
        "trainer.epochs=1",
        f"trainer.max_steps={steps}",
        "trainer.evaluate_every=0",
        "checkpoint.every=0",
        "optimizer.lr=0.001",  # there is nothing to learn, so the loss shall at least stay finite
    ]


def training(trainer: Trainer, case: Case, setup: Setup) -> Measured:
    """The loop itself; warmed up on one batch, so that no loader is ahead when it begins."""
    example = trainer.train.example()
    trainer.update.prime(lambda: example, warm_up=True)  # as a session begins
    trainer.update.model.train()
    for _ in range(WARM_UP):
        trainer.update([example], number=0, wants_norm=False)
    watch, epoch = Stopwatch(case, setup), trainer.train.epoch

    def watched(*args: Any, **options: Any) -> Iterator[Any]:
        return watch.waiting(epoch(*args, **options))

    trainer.train.epoch = watched  # type: ignore[method-assign]
    trainer.fit(lambda **_: None, due_after_step=watch)
    moved = None
    if not case.compile:
        with Traffic() as traffic:
            trainer.update([example], number=0, wants_norm=False)
        moved = traffic.bytes
    return watch.measured(bytes_per_step=moved)


def loading(trainer: Trainer, case: Case, setup: Setup) -> Measured:
    """Batches on the device, as quickly as they come."""
    watch = Stopwatch(case, setup)
    for step, _ in enumerate(islice(trainer.train.epoch(0), watch.end), 1):
        watch(step)
    return watch.measured()
