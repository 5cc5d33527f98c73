"""The observers of a run, in the order in which they are told what happens.

Those that only some runs have are loaded by name, as options are.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.loop.observers.breakdown import Breakdown
from manyheads.runner.loop.observers.garbage import Garbage
from manyheads.runner.loop.observers.held_memory import HeldMemory
from manyheads.runner.loop.observers.model_description import ModelDescription
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.observers.sample_record import SampleRecord
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update
from manyheads.runner.option.locate import load
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.sections import TrainerSection
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.model_description import Description
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.runner.callbacks.callback import Callback

OBSERVERS = "manyheads.runner.loop.observers"


def build_observers(trainer: TrainerSection, update: Update, loaders: Loaders, reporter: Reporter) -> list[Observer]:
    """The observers of updates, whether or not they are part of a recorded run.

    Raises ConfigurationError if averaging would start after the last epoch.
    """
    parallel = update.parallel
    # Otherwise samples are taken repeatedly, or by ranks that leave and rejoin; or none are.
    marks = trainer.aug_repeats == 1 and not parallel.keeps_rows and not trainer.evaluate_only
    observers: list[Observer] = [SampleRecord(reporter, parallel, Taken(loaders.train.samples, marks=marks))]
    if trainer.on_spike is not None:
        observers.append(load(f"{OBSERVERS}.spike_record.SpikeRecord")(reporter, parallel))
    if not trainer.evaluate_only and (trainer.ema_decay is not None or trainer.swa_start is not None):
        observers.append(load(f"{OBSERVERS}.average.average_of")(trainer, update, reporter.epochs))
    observers.append(Breakdown.of(update))
    if parallel.world_size > 1:  # no other waits for a single rank
        observers.append(load(f"{OBSERVERS}.rank_times.RankTimes").of(parallel, reporter.display.say))
    return [*observers, HeldMemory(update), Garbage()]


def callbacks_of(run: RunConfig, parallel: Parallel) -> "Sequence[Callback]":
    """The config's callbacks on this rank. Raises ConfigurationError."""
    return load(f"{OBSERVERS}.callbacks.instantiated")(run, parallel) if run.callbacks else []


def observers_of_record(
    run: RunConfig,
    folder: RunFolder,
    update: Update,
    reporter: Reporter,
    *,
    describe: Callable[[], Description],
    callbacks: "Sequence[Callback]",
) -> list[Observer]:
    """The observers that write to the run's folder or are the user's own, told after all others.

    ``describe``: makes the content of model.json, which the rank that writes the run's files needs.
    """
    observers: list[Observer] = [ModelDescription(folder, describe)] if update.parallel.records else []
    if callbacks:
        observers.append(load(f"{OBSERVERS}.callbacks.Callbacks").of(callbacks, run, folder, update, reporter))
    return observers
