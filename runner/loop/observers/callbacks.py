"""Tells the config's callbacks what happens."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.observers.sampling import sampling
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.option.locate import instantiate_named
from manyheads.runner.option.tree import Section
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.pictures import with_step
from manyheads.runner.run.run_folder import RunFolder


class Callbacks(Observer):
    """Calls each of these ``callbacks``. ``about``: the run, given its model and step; ``checkpoint``: the last one."""

    def __init__(self, callbacks: Sequence[Callback], about: Callable[..., RunContext], checkpoint: Path):
        self.callbacks, self._about, self._checkpoint = callbacks, about, checkpoint

    def attached(self, update: Update, reporter: Reporter) -> Self:
        """The same for what trains, and shows and records what happens."""
        model, task = update.parallel.unwrap(update.model), update.scores.task
        record, say = reporter.recorder.picture, reporter.display.say

        def picture(name: str, png: bytes, step: int) -> None:
            record(name, with_step(png, step), step)

        self._about = partial(self._about, model=model, task=task, picture=picture, say=say)
        self._sampling = partial(sampling, update)
        return self

    def start(self, progress: Progress) -> None:
        for callback in self.callbacks:
            calling = partial(self._sampling, name=type(callback).__name__, every_rank=callback.every_rank)
            callback.on_start(self._about(step=progress.step, sampling=calling))

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        for callback in self.callbacks:
            callback.on_update(progress.step)

    def evaluated_batch(self, outputs: Any, batch: Batch) -> None:
        for callback in self.callbacks:
            callback.on_evaluation_batch(outputs, batch.content, batch.ids.tolist())

    def evaluated(self, split: str, samples: Any) -> None:
        for callback in self.callbacks:
            callback.on_evaluation(split, samples)

    def epoch_ended(self, row: Numbers) -> None:
        for callback in self.callbacks:
            callback.on_epoch(row)

    def saved(self) -> None:
        for callback in self.callbacks:
            callback.on_checkpoint(self._checkpoint)

    def ended(self, result: ResultJson) -> None:
        for callback in self.callbacks:
            callback.on_end(result)

    def close(self) -> None:
        for callback in self.callbacks:
            callback.close()


def calling(section: Mapping[str, Section], parallel: Parallel, folder: RunFolder) -> list[Callbacks]:
    """What calls the callbacks of this section on this rank; empty if it has none. Raises ConfigurationError."""
    entries = instantiate_named("callbacks", section, Callback).values()
    callbacks = [callback for callback in entries if parallel.records or callback.every_rank]
    about = partial(
        RunContext,
        folder.path,
        folder.read_config(),
        rank=parallel.rank,
        world_size=parallel.world_size,
        gather=parallel.gather,
    )
    return [Callbacks(callbacks, about, folder.last_checkpoint)] if callbacks else []
