"""The observers of a run, in the order in which they are told what happens.

Those that only some runs have are loaded by name, as options are.
"""

from collections.abc import Callable

from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.observers.breakdown import Breakdown
from manyheads.runner.loop.observers.garbage import Garbage
from manyheads.runner.loop.observers.held_memory import HeldMemory
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.observers.sample_record import SampleRecord
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update
from manyheads.runner.option.locate import load
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.run.model_description import Description, write
from manyheads.runner.run.run_folder import RunFolder

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
    start, decay = trainer.swa_start, trainer.ema_decay
    if start is not None and start > reporter.epochs and not trainer.evaluate_only:
        rest = f" is after the last epoch: the run ends in epoch {reporter.epochs}. Lower it."
        raise ConfigurationError.at("trainer.swa_start", start, rest)
    if decay is not None and not trainer.evaluate_only:
        ema = load(f"{OBSERVERS}.average.EMA")
        observers.append(ema(update, decay=decay, every=trainer.ema_every, warmup=trainer.ema_warmup))
    elif start is not None and not trainer.evaluate_only:
        observers.append(load(f"{OBSERVERS}.average.SWA")(update, start=start))
    if (encoding := getattr(loaders.train.batches.dataset, "encoding", None)) is not None:
        observers.append(load(f"{OBSERVERS}.encoding_record.EncodingRecord")(encoding))
    if getattr(stream := loaders.train.batches.dataset, "keeps_state", False):
        observers.append(load(f"{OBSERVERS}.stream_record.StreamRecord")(stream, parallel))
    observers.append(Breakdown.of(update))
    if parallel.world_size > 1:  # no other waits for a single rank
        observers.append(load(f"{OBSERVERS}.rank_times.RankTimes").of(parallel, reporter.display.say))
    if getattr(parallel, "sharding", None) is not None:
        observers.append(load(f"{OBSERVERS}.uses.ShardUses")(update))
    if parallel.world_size > 1 and len(getattr(update, "parts", ())) > 1:
        observers.append(load(f"{OBSERVERS}.uses.TurnUses")(update))
    return [*observers, HeldMemory(update), Garbage()]


class ModelDescription(Observer):
    """``describe``: the content of model.json, known once batches have arrived."""

    def __init__(self, folder: RunFolder, describe: Callable[[], Description]):
        self._folder, self.describe, self._is_written = folder, describe, False

    def saving(self) -> None:
        if not self._is_written:
            write(self._folder, self.describe())
            self._is_written = True
