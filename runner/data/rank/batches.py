"""Turns a request into a batch in host memory, in a loader process or in the rank itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from manyheads.runner.data.keys import alternating_keys, copy_keys, sample_keys
from manyheads.runner.data.rank.mixing import Mix, Partners
from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.data.rank.unfit_samples import is_filtered, is_none, not_stacked
from manyheads.runner.data.samples import CorruptSample, Dataset
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.structure import map_tensors, unrepeated

NO_KEYS = np.empty(0, np.uint64)


class Unreadable(NamedTuple):
    """A sample that could not be read; ``reason``: in words."""

    sample: int
    path: str
    reason: str


@dataclass
class Batch:
    """One micro-batch. ``count`` and ``weight``: as in ``BatchIndices``; ``corrupt``: the unreadable samples.

    ``ids``: indices of its samples in the data set, (N,); a replaced sample keeps its own index. ``epoch``: for which
    they were drawn, from 0.

    ``content``: the result of the data set's collation, None if there is no sample; ``inputs``: the model's inputs;
    ``counted``: number of units that the task's loss averages over, such as tokens; ``mix``: how its samples are mixed;
    ``partners``: the samples that they are mixed with. The loader mixes, and adds ``inputs``, ``counted`` and
    ``partners``, on the device. ``reached``: where the reading of a stream is behind them, by part.
    """

    content: Any
    count: int
    weight: float
    corrupt: list[Unreadable] = field(default_factory=list)
    inputs: Any = None
    counted: float = 0
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    epoch: int = 0
    mix: Mix | None = None
    partners: Partners | None = None
    reached: Mapping[int, Any] = field(default_factory=dict)

    @property
    def own_ids(self) -> np.ndarray:
        """The indices of those samples that count, (count,), without partners of other ranks."""
        return self.ids[: self.count] if self.mix is None else self.ids[self.mix.first : self.mix.last]

    def pin_memory(self) -> "Batch":
        self.content = map_tensors(partial(unrepeated, Tensor.pin_memory), self.content)
        return self


class BatchDataset:
    """A map from requests to batches, which collates samples by the data set's own ``collate_fn`` if it has one.

    ``replace_corrupt``: whether to replace unreadable samples by the next one, instead of skipping them; ``fill``: give
    a batch without readable samples one that does not count, instead of leaving it empty; ``resizes``: call the data
    set's ``resize`` with the size in each request; ``redraws``: call its ``set_epoch``, if it has one, for each epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        seed: int,
        on_corrupt: str,
        replace_corrupt: bool,
        fill: bool = False,
        resizes: bool = False,
        redraws: bool = False,
    ):
        self.dataset, self.seed, self.resizes = dataset, seed, resizes
        self.on_corrupt, self.replace_corrupt, self.fill = on_corrupt, replace_corrupt, fill
        self.alternates = getattr(dataset, "alternates", False)
        self.uses_keys = getattr(dataset, "uses_keys", True) or not hasattr(dataset, "batch")
        self.generators = getattr(dataset, "draws_from", GENERATORS)
        self.collate = getattr(dataset, "collate_fn", None) or default_collate
        self.is_stacked = self.collate is default_collate
        self._redraw, self._epoch = getattr(dataset, "set_epoch", None) if redraws else None, -1
        self._reached = getattr(dataset, "reached", None) if redraws else None

    def __getitem__(self, request: BatchIndices) -> Batch | ConfigurationError:
        """The batch for a request; a configuration error is returned, since raising it in a loader would garble it."""
        if self.resizes:
            self.dataset.resize(request.side)  # type: ignore[attr-defined]
        if self._redraw is not None and request.epoch != self._epoch:
            self._redraw(request.epoch)
            self._epoch = request.epoch
        keys = self._keys(request) if self.uses_keys else NO_KEYS
        if hasattr(self.dataset, "batch"):
            content = self.dataset.batch(request.indices, keys)
            return self._batch(request, content, request.count, request.indices)
        try:
            batch = self._collect(request, keys)
        except ConfigurationError as error:
            return error
        if self._reached is not None:
            batch.reached = self._reached()
        return batch

    def fetch(self, request: BatchIndices) -> Batch | ConfigurationError:
        """The batch for a request, in the rank's own process, whose random number generators are left unchanged."""
        if hasattr(self.dataset, "batch"):
            return self[request]
        with restored(self.generators):
            return self[request]

    def _keys(self, request: BatchIndices) -> np.ndarray:
        """A key for each sample, (N,) uint64."""
        keys = sample_keys(self.seed, request.epoch, request.indices)
        if request.copies is not None:
            keys = copy_keys(keys, request.copies)
        if self.alternates:
            keys = alternating_keys(keys, seed=self.seed, epoch=request.epoch, indices=request.indices)
        return keys

    def _collect(self, request: BatchIndices, keys: np.ndarray) -> Batch:
        samples, ids, corrupt = list[Any](), list[int](), list[Unreadable]()
        for index, key in zip(request.indices.tolist(), keys.tolist(), strict=True):
            sample = self._read(index, key, corrupt)
            if sample is None and self.replace_corrupt:
                sample = self._next_good(index, request.epoch, corrupt[-1].path)
            if sample is not None:
                samples.append(sample)
                ids.append(index)
        if not samples and self.fill:
            sample = self._next_good(int(request.indices[-1]), request.epoch, "the only sample")
            return Batch(self._collated([sample], request.indices[-1:].tolist()), 0, 0.0, corrupt)
        if not samples:
            return Batch(None, 0, 0.0, corrupt)
        count = min(request.count, len(samples))
        batch = self._batch(request, self._collated(samples, ids), count, np.array(ids))
        batch.corrupt = corrupt
        return batch

    def _collated(self, samples: list[Any], ids: Sequence[int]) -> Any:
        """The samples as a batch. Raises ConfigurationError for what cannot be stacked, and for samples left out."""
        if self.is_stacked:
            try:
                return self.collate(samples)
            except (RuntimeError, TypeError, ValueError, KeyError) as error:
                raise not_stacked(samples, ids, error) from error
        content = self.collate(samples)
        if (filtered := is_filtered(self.collate, content, ids)) is not None:
            raise filtered
        return content

    def _batch(self, request: BatchIndices, content: Any, count: int, ids: np.ndarray) -> Batch:
        return Batch(content, count, request.weight, ids=ids, epoch=request.epoch, mix=request.mix)

    def _read(self, index: int, key: int, corrupt: list[Unreadable]) -> Any | None:
        seed_sample(key, self.generators)
        path = f"sample {index}"
        try:
            if (sample := self.dataset[index]) is not None:
                return sample
            if self.on_corrupt == "error":
                raise is_none(self.dataset, index)
            corrupt.append(Unreadable(index, path, "it is None"))
            return None
        except (CorruptSample, OSError) as error:
            path = getattr(error, "path", path)
            reason = getattr(error, "reason", error)
            if self.on_corrupt == "error":
                raise ConfigurationError(
                    f"{path} cannot be read ({reason}). Repair or remove it, or set data.on_corrupt=skip.",
                    key="data.on_corrupt",
                    value="error",
                ) from None
            corrupt.append(Unreadable(index, str(path), str(reason)))
            return None

    def _next_good(self, index: int, epoch: int, path: str) -> Any:
        """The next readable sample in the data set's order: the same one on any number of ranks and workers."""
        size = len(self.dataset)
        for offset in range(1, size):
            after = (index + offset) % size
            key = int(sample_keys(self.seed, epoch, np.array([after]))[0])
            if (sample := self._read(after, key, [])) is not None:
                return sample
        raise ConfigurationError(
            f"{path} cannot be read, and neither can any other sample. Check data.root.", key="data.root"
        )
