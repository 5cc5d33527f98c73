"""Tells the config's callbacks what happens."""

from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.option.locate import Section, instantiate_named
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.run_folder import RunFolder


def build_callbacks(sections: Mapping[str, Section], parallel: Parallel) -> list[Callback]:
    """The config's callbacks that this rank has."""
    callbacks = instantiate_named("callbacks", sections, Callback).values()
    return [callback for callback in callbacks if parallel.records or callback.every_rank]


class Callbacks(Observer):
    """Calls each of these ``callbacks``. ``config``: the run's."""

    def __init__(
        self, callbacks: Sequence[Callback], config: Section, update: Update, folder: RunFolder, reporter: Reporter
    ):
        self.callbacks, self._config, self._update = callbacks, config, update
        self._folder, self._reporter = folder, reporter

    def start(self, progress: Progress) -> None:
        update, parallel = self._update, self._update.parallel
        for callback in self.callbacks:
            callback.on_start(
                RunContext(
                    self._folder.path,
                    dict(self._config),
                    parallel.unwrap(update.model),
                    parallel.rank,
                    parallel.world_size,
                    progress.step,
                    task=update.scores.task,
                    gather=parallel.gather,
                    picture=self._reporter.recorder.picture,
                    say=self._reporter.display.say,
                )
            )

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
            callback.on_checkpoint(self._folder.last_checkpoint)

    def ended(self, result: ResultJson) -> None:
        for callback in self.callbacks:
            callback.on_end(result)

    def close(self) -> None:
        for callback in self.callbacks:
            callback.close()
