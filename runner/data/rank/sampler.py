"""Chooses a rank's samples, from the epoch and the step alone: the only state there is."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from manyheads.runner.data.rank.mixing import Mix, Mixing, share_with_partners
from manyheads.runner.data.rank.order import Order
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
    """Divides the samples, in their order, into global batches, these into micro-batches, and these among the ranks.

    ``limit``: number of updates per epoch, or the fraction of them that is run; ``overfit``: number of updates per
    epoch, with the same batches in each; ``mixing``: draws how a batch's samples are mixed; ``resizing``: the size of
    an epoch's images. ``repeats``: copies of each sample in a batch; an epoch keeps its number of updates, and so has
    fewer different samples. Source: Hoffer et al. 2019 (https://arxiv.org/abs/1901.09335), in the form of Berman et
    al. 2019 (https://arxiv.org/abs/1902.05509).
    """

    def __init__(
        self,
        order: Order,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        accumulation: int,
        drop_last: bool,
        limit: float | None = None,
        overfit: int | None = None,
        mixing: Mixing | None = None,
        repeats: int = 1,
        resizing: Resizing | None = None,
    ):
        size = order.size
        self.order, self.size, self.batch_size = order, size, batch_size
        self.rank, self.world_size, self.accumulation = rank, world_size, accumulation
        self.overfits, self.mixing, self.repeats = overfit is not None, mixing, repeats
        self.resizing = resizing
        updates = size // batch_size if drop_last else -(-size // batch_size)
        self.updates = limited(limited(updates, limit), overfit)

    def epoch(self, epoch: int, first_update: int = 0) -> Iterator[BatchIndices]:
        """The requests of an epoch, ``accumulation`` for each update from ``first_update`` on."""
        side = None if self.resizing is None else self.resizing.side(epoch)
        epoch = 0 if self.overfits else epoch
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
        positions, copies = self._batch(update)
        mix = None if self.mixing is None else self.mixing.draw(epoch, update)
        for micro in range(self.accumulation):
            yield self._share(epoch, positions, copies, mix, micro, side)

    def _batch(self, update: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The positions of a global batch in the order, and the copy number of repeated samples.

        Copies are kept apart, so that none form a pair.
        """
        if self.repeats == 1:
            start = update * self.batch_size
            return np.arange(start, min(start + self.batch_size, self.size)), None
        distinct = -(-self.batch_size // self.repeats)
        positions = np.arange(update * distinct, min((update + 1) * distinct, self.size))
        size = min(self.batch_size, self.size - update * self.batch_size)
        return np.tile(positions, self.repeats)[:size], np.repeat(np.arange(self.repeats), len(positions))[:size]

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
        own = None if copies is None else copies[begin:end]
        weight = (high - low) * self.world_size / len(batch)
        return BatchIndices(epoch, self.order.at(epoch, batch[begin:end]), high - low, weight, mix, own, side)


def limited(count: int, limit: float | None) -> int:
    """The part of ``count`` that a limit allows: a number, or a fraction below 1; None for all."""
    if limit is None:
        return count
    return min(count, int(limit) if limit >= 1 else max(1, round(count * limit)))


class EvaluationSampler:
    """Yields every sample once, in order; all ranks have the same number of batches, some of which may be empty.

    ``fill``: give an empty batch a sample that does not count; ``limit``: number of batches, or a fraction of them.
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
    ):
        size = min(size, limited(-(-size // batch_size), limit) * batch_size)
        self.size, self.batch_size, self.rank, self.world_size = size, batch_size, rank, world_size
        self.fill = fill
        self.updates = -(-size // batch_size)

    def epoch(self, epoch: int, first_update: int = 0) -> Iterator[BatchIndices]:
        for start in range(first_update * self.batch_size, self.size, self.batch_size):
            length = min(self.batch_size, self.size - start)
            low = start + length * self.rank // self.world_size
            high = start + length * (self.rank + 1) // self.world_size
            filler = int(self.fill and low == high)
            yield BatchIndices(epoch, np.arange(low, high + filler) % self.size, high - low, 1.0)
