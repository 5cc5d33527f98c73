"""The observers of a run, in the order in which they are told what happens."""

from collections.abc import Callable, Sequence

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.observers.average import EMA, SWA, Average
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
from manyheads.runner.option.sections import TrainerSection
from manyheads.runner.run.model_description import Description
from manyheads.runner.run.run_folder import RunFolder


def build_observers(trainer: TrainerSection, update: Update, loaders: Loaders, reporter: Reporter) -> list[Observer]:
    """The observers of updates, whether or not they are part of a recorded run.

    Raises ConfigurationError if averaging would start after the last epoch.
    """
    parallel, averages, epochs = update.parallel, list[Average](), reporter.epochs
    if trainer.swa_start is not None and trainer.swa_start > epochs and not trainer.evaluate_only:
        rest = f" is after the last epoch: the run ends in epoch {epochs}. Lower it."
        raise ConfigurationError.at("trainer.swa_start", trainer.swa_start, rest)
    if trainer.ema_decay is not None and not trainer.evaluate_only:
        averages = [EMA(update, decay=trainer.ema_decay, every=trainer.ema_every, warmup=trainer.ema_warmup)]
    elif trainer.swa_start is not None and not trainer.evaluate_only:
        averages = [SWA(update, start=trainer.swa_start)]
    # Otherwise samples are taken repeatedly, or by ranks that leave and rejoin; or none are.
    marks = trainer.aug_repeats == 1 and not parallel.keeps_rows and not trainer.evaluate_only
    return [
        SampleRecord(reporter, parallel, Taken(loaders.train.samples, marks=marks)),
        *averages,
        Breakdown.of(update),
        *RankTimes.of(parallel, reporter.display.say),
        HeldMemory(update),
        Garbage(),
    ]


def observers_of_record(
    folder: RunFolder,
    *,
    records: bool,
    describe: Callable[[], Description],
    callbacks: Sequence[Callback],
    about: Callable[[int], RunContext],
) -> list[Observer]:
    """The observers that write to the run's folder or are the user's own, told after all others.

    ``records``: whether this rank writes the run's files; ``describe``: makes the content of model.json.
    """
    description = [ModelDescription(folder, describe)] if records else []
    return [*description, *([Callbacks(callbacks, about, folder.last_checkpoint)] if callbacks else [])]
