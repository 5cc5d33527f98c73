"""Tells the config's callbacks what happens."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.option.locate import instantiate_named
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.run_folder import RunFolder


def instantiated(run: RunConfig, parallel: Parallel) -> list[Callback]:
    """The callbacks of this rank. Raises ConfigurationError."""
    entries = instantiate_named("callbacks", run.callbacks, Callback).values()
    return [callback for callback in entries if parallel.records or callback.every_rank]


class Callbacks(Observer):
    """Calls each of these ``callbacks``. ``about``: the run, given its step; ``checkpoint``: the last one."""

    def __init__(self, callbacks: Sequence[Callback], about: Callable[[int], RunContext], checkpoint: Path):
        self.callbacks, self._about, self._checkpoint = callbacks, about, checkpoint

    @classmethod
    def of(
        cls, callbacks: Sequence[Callback], run: RunConfig, folder: RunFolder, update: Update, reporter: Reporter
    ) -> Self:
        """The observer of a run that calls them."""
        parallel = update.parallel
        about = partial(
            RunContext,
            folder.path,
            dict(run.written),
            parallel.unwrap(update.model),
            parallel.rank,
            parallel.world_size,
            task=update.scores.task,
            gather=parallel.gather,
            picture=reporter.recorder.picture,
            say=reporter.display.say,
        )
        return cls(callbacks, about, folder.last_checkpoint)

    def start(self, progress: Progress) -> None:
        for callback in self.callbacks:
            callback.on_start(self._about(progress.step))

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
