"""Loads batches and moves them to the device, ready for the model."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from manyheads.runner.data.rank.batches import Batch, BatchDataset
from manyheads.runner.data.rank.mixing import mixed
from manyheads.runner.data.rank.prefetch import prefetch
from manyheads.runner.data.rank.sampler import BatchIndices, EvaluationSampler, TrainingSampler
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.memory import too_small
from manyheads.runner.machine.process import die_with_parent
from manyheads.runner.parallel.rank.structure import map_tensors, unrepeated
from manyheads.runner.run.data_files import without_collector
from manyheads.runner.run.files import disk_full
from manyheads.runner.task.rank.task import Task


@dataclass(frozen=True)
class InputTransform:
    """How a batch is prepared for the model: device, dtype, memory format; for uint8 images mean and std, in 0..1."""

    device: torch.device
    dtype: torch.dtype
    channels_last: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    _scale: Tensor = field(init=False, repr=False, compare=False)
    _shift: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (self.mean, self.std))
        object.__setattr__(self, "_scale", (1 / (255 * std)).to(self.device, self.dtype))
        object.__setattr__(self, "_shift", (-mean / std).to(self.device, self.dtype))

    def prepare(self, tensor: Tensor) -> Tensor:
        """Prepare one of the model's inputs; uint8 images have the shape (..., C, H, W).

        The result is contiguous, or in memory format channels_last if it has four dimensions and that is configured.
        """
        keeps_format = self.channels_last and tensor.ndim == 4
        if keeps_format:  # before the conversion, while pixels have eight bits
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if tensor.dtype == torch.uint8:  # copied as a quarter of the bytes, normalized on the device
            return tensor.to(self.dtype).mul_(self._scale).add_(self._shift)
        tensor = tensor.to(self.dtype) if tensor.is_floating_point() else tensor
        return tensor if keeps_format else _contiguous(tensor)


class Loader:
    """Loads the batches of one split, epoch by epoch, from any update on.

    ``sample``: shape and dtype of a sample, set by the first batch whose input is a single tensor.
    """

    sample: tuple[tuple[int, ...], str] | None = None

    def __init__(
        self,
        batches: BatchDataset,
        sampler: TrainingSampler | EvaluationSampler,
        *,
        task: Task,
        entrance: InputTransform,
        num_workers: int,
    ):
        self.batches, self.sampler, self.task, self.entrance = batches, sampler, task, entrance
        self._counts_samples = task.counts_samples
        self._requests = _Requests()
        self._workers = _workers(batches, self._requests, num_workers, entrance.device) if num_workers else None

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        return self.sampler.updates

    @property
    def samples(self) -> int:
        return len(self.batches.dataset)

    def epoch(self, epoch: int, first_update: int = 0) -> Iterator[Batch]:
        """This rank's micro-batches of one epoch, on the device, images as (B, C, H, W)."""
        requests = self.sampler.epoch(epoch, first_update)
        if self._workers is None:
            fetched: Iterator[Batch | ConfigurationError] = map(self.batches.fetch, requests)
        else:
            self._requests.current = requests
            fetched = _sent_by(self._workers)
        yield from self._entered(map(_sound, fetched))

    def example(self) -> Batch:
        """A micro-batch of the first epoch, with images at their full size; does not advance the loader."""
        return self.take(next(self.sampler.epoch(0))._replace(side=None))

    def first(self, count: int) -> Any:
        """The model's inputs for the data set's first ``count`` samples, on the CPU, as in the first epoch."""
        indices = np.arange(min(count, self.samples))
        batch = self.take(BatchIndices(0, indices, len(indices), 1.0))
        return map_tensors(Tensor.cpu, batch.inputs)

    def drawn(self, batches: list[Batch], update: int, *, share: int, of: int) -> list[Batch]:
        """The micro-batches of part ``share`` of ``of`` in an update of the current epoch; ``batches`` if they match.

        Later batches belong to that part too, except for those already requested from loader processes.
        """
        assert isinstance(self.sampler, TrainingSampler)
        requests = self.sampler.update(update, rank=share, world_size=of)
        if len(batches) == len(requests) and all(map(_answers, batches, requests)):
            return batches
        return [self.take(request) for request in requests]

    def take(self, request: BatchIndices) -> Batch:
        """Load one micro-batch, which need not belong to an epoch."""
        return self._enter(_sound(self.batches.fetch(request)))

    def close(self) -> None:
        """End the loader processes, each of which would take 5 seconds if garbage-collected within an epoch."""
        processes: Any = None if self._workers is None else self._workers._iterator
        if self._workers is not None and processes is not None:
            processes._shutdown_workers()
            self._workers._iterator = None

    def _entered(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        if self.entrance.device.type == "cuda" and not getattr(self.batches.dataset, "is_on_device", False):
            return prefetch(batches, self._enter, self.entrance.device)
        return map(self._enter, batches)

    def _enter(self, batch: Batch) -> Batch:
        if batch.content is None:
            return batch
        if batch.count:
            batch.counted = batch.count if self._counts_samples else float(self.task.count(batch.content))
        if self.entrance.device.type != "cpu":  # on the CPU it is in place
            batch.content = map_tensors(self._move, batch.content)
        batch.content = map_tensors(_unless_repeated, batch.content)
        inputs = self.task.inputs(batch.content)
        if self.sample is None and isinstance(inputs, Tensor):
            self.sample = tuple(inputs.shape[1:]), str(inputs.dtype).removeprefix("torch.")
        batch.inputs = map_tensors(self.entrance.prepare, inputs)
        if batch.mix is not None:
            batch.inputs, batch.content, batch.partners = mixed(batch.mix, batch.inputs, batch.content)
        return batch

    def _move(self, tensor: Tensor) -> Tensor:
        return unrepeated(lambda held: held.to(self.entrance.device, non_blocking=True), tensor)


def _contiguous(tensor: Tensor) -> Tensor:
    """For models and losses that use ``view``."""
    return tensor.contiguous() if tensor.layout is torch.strided else tensor


def _unless_repeated(tensor: Tensor) -> Tensor:
    """Contiguous, except for what repeats values, such as a grey image, which ``Entrance.prepare`` converts anyway."""
    return tensor if tensor.layout is torch.strided and 0 in tensor.stride() else _contiguous(tensor)


def _answers(batch: Batch, request: BatchIndices) -> bool:
    return batch.weight == request.weight and [*batch.ids] == request.indices.tolist()


def _sound(batch: Batch | ConfigurationError) -> Batch:
    if isinstance(batch, ConfigurationError):
        raise batch
    return batch


def _sent_by(workers: DataLoader) -> Iterator[Batch | ConfigurationError]:
    """Receive batches from the loader processes. Raises ConfigurationError if shared memory had no room for them."""
    try:
        with without_collector():
            batches = iter(workers)
        yield from batches
    except OSError as error:  # no room even for their queues' semaphores
        if disk_full(error):
            raise ConfigurationError(too_small()) from error
        raise
    except RuntimeError as error:
        if "DataLoader worker" in str(error) and "Bus error" in f"{error} {error.__cause__}":
            raise ConfigurationError(too_small()) from error
        raise


def _shared(batch: Batch | ConfigurationError) -> Batch | ConfigurationError:
    """Move a batch to shared memory in the loader process itself, which can report when there is no room.

    In the queue's thread, that would end in a traceback on the terminal, and a rank that waits for the batch forever.
    """
    if isinstance(batch, Batch):
        try:
            batch.content = map_tensors(lambda tensor: tensor.share_memory_(), batch.content)
        except RuntimeError as error:
            if "shared memory" not in str(error):
                raise
            return ConfigurationError(too_small())
    return batch


class _Requests:
    """The sampler that the loader processes see: the requests of the current epoch."""

    current: Iterator[BatchIndices]

    def __iter__(self) -> Iterator[BatchIndices]:
        return self.current


def _workers(batches: BatchDataset, requests: _Requests, count: int, device: torch.device) -> DataLoader:
    return DataLoader(
        batches,  # type: ignore[arg-type]
        sampler=requests,
        batch_size=None,  # a request is a whole batch
        collate_fn=_shared,  # type: ignore[arg-type]
        num_workers=count,
        # By default, a rank forked from a server would start its children from another server, whose death nobody
        # would notice.
        multiprocessing_context="fork",
        persistent_workers=True,
        pin_memory=device.type == "cuda",
        worker_init_fn=_enter_worker,
        generator=torch.Generator(),  # otherwise each epoch would draw from the model's random numbers
    )


def _enter_worker(_: int) -> None:
    die_with_parent()
    gc.freeze()  # never finalize the rank's objects here, such as a process group, whose threads this process lacks
    gc.enable()
    torch.set_num_threads(1)
