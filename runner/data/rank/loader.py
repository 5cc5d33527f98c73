"""Loads batches and moves them to the device, ready for the model."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from torch import Tensor

from manyheads.runner.data.rank.batches import Batch, BatchDataset
from manyheads.runner.data.rank.input_transform import InputTransform, unless_image
from manyheads.runner.data.rank.mixing import mixed
from manyheads.runner.data.rank.prefetch import pinned, prefetch
from manyheads.runner.data.rank.sampler import BatchIndices, EvaluationSampler, TrainingSampler
from manyheads.runner.data.rank.unfit_samples import refuse_unordered
from manyheads.runner.data.read_ahead import read_ahead
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load
from manyheads.runner.parallel.rank.structure import map_tensors, unrepeated
from manyheads.runner.task.rank.task import Task


class Loader:
    """Loads the batches of one split, epoch by epoch, from any update on.

    ``updates``: the number of updates in an epoch; ``samples``: of samples in the data set, whatever the limit.
    ``sample``: shape and dtype of a sample, set by the first batch whose input is a single tensor. ``rounding``: by how
    much inputs are rounded, set by an epoch's first batch, as in ``InputTransform.check``.
    """

    sample: tuple[tuple[int, ...], str] | None = None
    rounding = 0.0

    def __init__(
        self,
        batches: BatchDataset,
        sampler: TrainingSampler | EvaluationSampler,
        *,
        task: Task,
        input_transform: InputTransform,
        num_workers: int,
    ):
        self.batches, self.sampler, self.task, self.input_transform = batches, sampler, task, input_transform
        self.updates, self.samples = sampler.updates, len(batches.dataset)
        self._is_checked, self.processes = False, num_workers
        workers = load("manyheads.runner.data.rank.workers.Workers") if num_workers else None
        self._workers = workers and workers(batches, num_workers)

    def epoch(self, epoch: int, first_update: int = 0, *, continues: bool = False) -> Iterator[Batch]:
        """This rank's micro-batches of one epoch, on the device, images as (B, C, H, W).

        ``continues``: whether the next epoch follows, whose first batches loader processes then build at its end.
        """
        requests = read_ahead(self.batches.dataset, self.sampler.epoch(epoch, first_update))
        if self._workers is None:
            batches: Iterator[Any] = map(self.batches.fetch, requests)
        else:
            coming = copy(self.sampler).epoch(epoch + 1) if continues else iter(())
            batches = self._workers.fetch(requests, read_ahead(self.batches.dataset, coming))
        yield from self._entered(map(_sound, batches))

    def example(self) -> Batch:
        """A micro-batch of the first epoch, with images at their full size; does not advance the loader."""
        return self.take(next(self.sampler.epoch(0))._replace(side=None))

    def first(self, count: int) -> Any:
        """The model's inputs for the data set's first ``count`` samples, on the CPU, as in the first epoch."""
        indices = np.arange(min(count, self.samples))
        return map_tensors(Tensor.cpu, self.take(BatchIndices(0, indices, len(indices), 1.0)).inputs)

    def spread(self, count: int) -> Any:
        """The content of a batch of ``count`` samples from all of the data set; None if none can be read."""
        for first in range(self.samples):
            indices = np.unique(np.linspace(first, self.samples - 1, count, dtype=np.int64))
            if (batch := self.take(BatchIndices(0, indices, len(indices), 1.0))).content is not None:
                return batch.content
        return None

    def drawn(self, batches: list[Batch], update: int, *, share: int, of: int) -> list[Batch]:
        """The micro-batches of part ``share`` of ``of`` in an update of the current epoch; ``batches`` if they match.

        Later batches belong to that part too, except for those already requested from loader processes.
        """
        assert isinstance(self.sampler, TrainingSampler)
        requests = self.sampler.update(update, rank=share, world_size=of)
        if len(batches) == len(requests) and all(map(_answers, batches, requests)):
            return batches
        return [self.take(request) for request in requests]

    def requests(self, update: int) -> list[BatchIndices]:
        """What this rank requested for an update of the current epoch."""
        assert isinstance(self.sampler, TrainingSampler)
        return self.sampler.update(update, rank=self.sampler.rank, world_size=self.sampler.world_size)

    def take(self, request: BatchIndices) -> Batch:
        """Load one micro-batch, which need not belong to an epoch."""
        was_checked = self._is_checked
        batch = self._enter(_sound(self.batches.fetch(request)))
        self._is_checked = was_checked  # a single sample does not show how much values differ
        return batch

    def close(self) -> None:
        """End the loader processes."""
        if self._workers is not None:
            self._workers.close()

    def _entered(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        if self.input_transform.device.type == "cuda" and not getattr(self.batches.dataset, "is_on_device", False):
            sent = batches if self._workers is None else pinned(batches, self.input_transform.device)
            return prefetch(sent, self._enter, self.input_transform.device)
        return map(self._enter, batches)

    def _enter(self, batch: Batch) -> Batch:
        if batch.content is None:
            return batch
        if not self._is_checked:
            refuse_unordered(self.task, batch.content)
        batch.content = self.task.converted(batch.content)
        if batch.count:
            batch.counted = batch.count if self.task.counts_samples else float(self.task.count(batch.content))
        if self.input_transform.device.type != "cpu":  # on the CPU it is in place
            batch.content = map_tensors(self._move, batch.content)
        batch.content = map_tensors(unless_image, batch.content)
        inputs = self.task.inputs(batch.content)
        if self.sample is None and isinstance(inputs, Tensor):
            self.sample = tuple(inputs.shape[1:]), str(inputs.dtype).removeprefix("torch.")
        if not self._is_checked:
            self.rounding = self.input_transform.check(inputs)
            self._is_checked = True
        batch.inputs = self.input_transform.inputs(inputs, self.task.labels_among_inputs(batch.content))
        if batch.mix is not None:
            batch.inputs, batch.content, batch.partners = mixed(batch.mix, batch.inputs, batch.content)
        return batch

    def _move(self, tensor: Tensor) -> Tensor:
        return unrepeated(lambda held: held.to(self.input_transform.device, non_blocking=True), tensor)


def _answers(batch: Batch, request: BatchIndices) -> bool:
    return batch.weight == request.weight and [*batch.ids] == request.indices.tolist()


def _sound(batch: Batch | ConfigurationError) -> Batch:
    if isinstance(batch, ConfigurationError):
        raise batch
    return batch
