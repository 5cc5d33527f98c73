"""Chooses a rank's samples as a function of epoch and step, without any other state."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from manyheads.runner.data.global_batches import GlobalBatches, limited
from manyheads.runner.data.order import Order
from manyheads.runner.data.rank.mixing import Mix, Mixing, share_with_partners
from manyheads.runner.data.rank.resizing import Resizing


class BatchIndices(NamedTuple):
    """One micro-batch of one rank.

    ``count``: how many of the indices count; 0 if the rank has no sample and only keeps in step with the others.
    ``weight``: the factor on its mean loss that makes the ranks' averaged gradients those of the global batch. ``mix``:
    how samples are mixed, which may need more than those that count; ``copies``: the number of each repeated sample's
    copy, from 0; ``side``: height and width of its images in pixels, None for their own.
    """

    epoch: int
    indices: np.ndarray
    count: int  # type: ignore[assignment]  # tuple.count is of no use here
    weight: float
    mix: Mix | None = None
    copies: np.ndarray | None = None
    side: int | None = None


class TrainingSampler:
    """Takes this rank's part of each global batch, micro-batch by micro-batch.

    ``order``: of the samples; ``batches``: the positions in it of each update. ``mixing``: draws how a batch's samples
    are mixed; ``resizing``: the size of an epoch's images.
    """

    def __init__(
        self,
        order: Order,
        batches: GlobalBatches,
        *,
        rank: int,
        world_size: int,
        accumulation: int,
        mixing: Mixing | None = None,
        resizing: Resizing | None = None,
    ):
        self.order, self.batches, self.updates = order, batches, batches.updates
        self.rank, self.world_size, self.accumulation = rank, world_size, accumulation
        self.mixing, self.resizing = mixing, resizing

    def epoch(self, epoch: int, first_update: int = 0) -> Iterator[BatchIndices]:
        """The requests of an epoch, ``accumulation`` for each update from ``first_update`` on."""
        side = None if self.resizing is None else self.resizing.side(epoch)
        epoch = self.batches.drawn(epoch)
        self._begun = epoch, side
        for update in range(first_update, self.updates):
            yield from self._update(epoch, side, update)

    def update(self, number: int, *, rank: int, world_size: int) -> list[BatchIndices]:
        """The ``accumulation`` requests for one update of the current epoch, for ``rank`` of ``world_size`` ranks.

        The requests that the epoch still yields are for that rank too.
        """
        self.rank, self.world_size = rank, world_size
        return list(self._update(*self._begun, number))

    def _update(self, epoch: int, side: int | None, update: int) -> Iterator[BatchIndices]:
        positions, copies = self.batches.positions(update)
        mix = None if self.mixing is None else self.mixing.draw(epoch, update)
        for micro in range(self.accumulation):
            yield self._share(epoch, positions, copies, mix, micro, side)

    def _share(
        self, epoch: int, batch: np.ndarray, copies: np.ndarray | None, mix: Mix | None, micro: int, side: int | None
    ) -> BatchIndices:
        part, parts = micro * self.world_size + self.rank, self.accumulation * self.world_size
        low, high = len(batch) * part // parts, len(batch) * (part + 1) // parts
        if low == high:  # the rank still takes part in reducing gradients, with weight 0
            return BatchIndices(epoch, self.order.at(epoch, batch[:1]), 0, 0.0, side=side)
        begin, end = low, high
        if mix is not None:
            begin, end, mix = share_with_partners(low, high, len(batch), mix)
        copy_numbers = None if copies is None else copies[begin:end]
        weight = (high - low) * self.world_size / len(batch)
        return BatchIndices(epoch, self.order.at(epoch, batch[begin:end]), high - low, weight, mix, copy_numbers, side)


class EvaluationSampler:
    """Yields every sample once, in order; all ranks have the same number of batches, some of which may be empty.

    ``fill``: give an empty batch a sample that does not count; ``limit``: number of batches, or a fraction of them,
    which have a random sample of all, drawn by ``seed``, in order: the first ones of sorted samples have one class.
    """

    def __init__(
        self,
        size: int,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        fill: bool = False,
        limit: float | None = None,
        seed: int = 0,
    ):
        of, size = size, min(size, limited(-(-size // batch_size), limit) * batch_size)
        self._drawn = None if size == of else np.sort(np.random.RandomState(seed % 2**32).permutation(of)[:size])
        self.size, self.batch_size, self.rank, self.world_size = size, batch_size, rank, world_size
        self.fill, self.updates = fill, -(-size // batch_size)
        self.subset = "" if self._drawn is None else f"{size:,} of {of:,} samples, drawn by data.split_seed={seed}"

    def epoch(self, epoch: int, first_update: int = 0) -> Iterator[BatchIndices]:
        """This rank's part of each batch, from number ``first_update`` on."""
        for start in range(first_update * self.batch_size, self.size, self.batch_size):
            length = min(self.batch_size, self.size - start)
            low = start + length * self.rank // self.world_size
            high = start + length * (self.rank + 1) // self.world_size
            positions = np.arange(low, high + int(self.fill and low == high)) % self.size  # with a filler
            indices = positions if self._drawn is None else self._drawn[positions]
            yield BatchIndices(epoch, indices, high - low, 1.0)
