"""Which positions of an epoch's order belong to which update, whatever the number of ranks."""

import numpy as np


class GlobalBatches:
    """Divides ``size`` positions into global batches, one for each update.

    ``limit``: number of updates per epoch, or the fraction of them that is run; ``overfit``: number of updates per
    epoch, with the same batches in each. ``repeats``: copies of each sample in a batch; an epoch keeps its number of
    updates, and so has fewer different samples. Source: Hoffer et al. 2019 (https://arxiv.org/abs/1901.09335), in the
    form of Berman et al. 2019 (https://arxiv.org/abs/1902.05509).
    """

    def __init__(
        self,
        size: int,
        *,
        batch_size: int,
        drop_last: bool,
        limit: float | None = None,
        overfit: int | None = None,
        repeats: int = 1,
    ):
        self.size, self.batch_size, self.repeats, self._overfits = size, batch_size, repeats, overfit is not None
        self.updates = limited(limited(size // batch_size if drop_last else -(-size // batch_size), limit), overfit)

    def drawn(self, epoch: int) -> int:
        """The epoch whose order of samples ``epoch`` uses, both counted from 0."""
        return 0 if self._overfits else epoch

    def positions(self, update: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The positions of an update's batch, counted from 0 in the epoch, and the copy number of repeated samples.

        Copies of a sample are kept apart, so that mixup never pairs them.
        """
        if self.repeats == 1:
            start = update * self.batch_size
            return np.arange(start, min(start + self.batch_size, self.size)), None
        distinct = -(-self.batch_size // self.repeats)
        positions = np.arange(update * distinct, min((update + 1) * distinct, self.size))
        size = min(self.batch_size, self.size - update * self.batch_size)
        return np.tile(positions, self.repeats)[:size], np.repeat(np.arange(self.repeats), len(positions))[:size]


def limited(count: int, limit: float | None) -> int:
    """The part of ``count`` that a limit allows: a number, or a fraction below 1; None for all."""
    if limit is None:
        return count
    return min(count, int(limit) if limit >= 1 else max(1, round(count * limit)))
