"""The observers of a run, in the order in which they are told what happens."""

from collections.abc import Callable, Sequence

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.loop.observers.average import build_average
from manyheads.runner.loop.observers.breakdown import Breakdown
from manyheads.runner.loop.observers.callbacks import Callbacks
from manyheads.runner.loop.observers.garbage import Garbage
from manyheads.runner.loop.observers.held_memory import HeldMemory
from manyheads.runner.loop.observers.model_description import ModelDescription
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.observers.rank_times import RankTimes
from manyheads.runner.loop.observers.sample_record import SampleRecord
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.model_description import Description
from manyheads.runner.run.run_folder import RunFolder


def build_observers(run: RunConfig, update: Update, loaders: Loaders, reporter: Reporter) -> list[Observer]:
    """The observers of updates, whether or not they are part of a recorded run."""
    trainer, parallel = run.trainer, update.parallel
    # Otherwise samples are taken repeatedly, or by ranks that leave and rejoin; or none are.
    marks = trainer.aug_repeats == 1 and not parallel.keeps_rows and not trainer.evaluate_only
    averages = [] if trainer.evaluate_only else build_average(trainer, update, updates=loaders.train.updates)
    return [
        SampleRecord(reporter, parallel, Taken(loaders.train.samples, marks=marks)),
        *averages,
        Breakdown.of(update),
        *RankTimes.of(parallel, reporter.display.say),
        HeldMemory(update),
        Garbage(),
    ]


def observers_of_record(
    run: RunConfig,
    update: Update,
    folder: RunFolder,
    reporter: Reporter,
    *,
    callbacks: Sequence[Callback],
    describe: Callable[[], Description],
) -> list[Observer]:
    """The observers that write to the run's folder or are the user's own, told after all others."""
    description = [ModelDescription(folder, describe)] if update.parallel.records else []
    return [*description, *([Callbacks(callbacks, dict(run.written), update, folder, reporter)] if callbacks else [])]
