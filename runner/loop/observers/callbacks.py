"""Tells the config's callbacks what happens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.option.locate import instantiate_named
from manyheads.runner.option.tree import Section
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import evaluating, map_tensors
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


@contextmanager
def sampling(update: Update, seed: int = 0, *, name: str, every_rank: bool) -> Iterator[Callable[..., Any]]:
    """The model of ``update`` in evaluation mode, without gradients, in the run's precision; see ``RunContext``.

    ``seed``: of this process's generators within the context, whose states are restored after it. ``name``,
    ``every_rank``: of the callback. Raises ConfigurationError where all ranks must call the model, and only one would.
    """
    parallel = update.parallel
    if parallel.evaluates_together and parallel.world_size > 1 and not every_rank:
        raise ConfigurationError(
            f"{name} calls the model on rank 0 alone, but each rank has a part of it. Let the callback set "
            "every_rank = True and call the model on every rank, or choose a strategy with whole models, such as "
            "parallel=ddp.",
            key="parallel",
        )
    model = update.model
    with evaluating(model), restored(GENERATORS), torch.no_grad(), update.precision.autocast():
        seed_sample(seed)
        if parallel.device.type == "cuda":
            torch.cuda.manual_seed(seed)  # of the current device, which ``restored`` restores
        yield partial(_evaluate, parallel, model) if parallel.evaluates_together else parallel.unwrap(model)


def _evaluate(parallel: Parallel, model: nn.Module, inputs: Any) -> Any:
    """The outputs for ``inputs`` on every rank, also those that have only the model's first part."""
    outputs = parallel.evaluate(model, inputs)
    if parallel.data_size == parallel.world_size:
        return outputs
    sent = map_tensors(Tensor.cpu, outputs) if parallel.counts_samples else None
    shares = parallel.gather((parallel.data_rank, sent))
    received = next(part for share, part in shares if share == parallel.data_rank and part is not None)
    return map_tensors(lambda tensor: tensor.to(parallel.device), received)
