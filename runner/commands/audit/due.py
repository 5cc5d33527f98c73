"""The samples that were due: those that the updates of a run should have taken, from its config alone."""

from collections.abc import Iterator

import numpy as np

from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.order import build_order
from manyheads.runner.option.locate import Section

CHUNK = 2**20  # samples at a time


class Due:
    """The due samples of a run with ``size`` training samples. Epochs and updates are counted from 1."""

    def __init__(self, config: Section, size: int):
        data, trainer = config["data"], config["trainer"]
        block, window = data.get("order_block"), data.get("order_window")
        kind = data.get("order", "shuffle")
        self.size, self.order = size, build_order(kind, size, seed=config["seed"], block=block, window=window)
        self.batches = GlobalBatches(
            size,
            batch_size=data["batch_size"],
            drop_last=data["drop_last"],
            limit=trainer["limit_train"],
            overfit=trainer["overfit"],
            repeats=trainer["aug_repeats"],
        )

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        return self.batches.updates

    def drawn(self, epoch: int) -> int:
        """The number of the epoch, from 0, with which its samples are hashed; see ``GlobalBatches.drawn``."""
        return self.batches.drawn(epoch - 1)

    def samples(self, epoch: int, first: int, last: int) -> np.ndarray:
        """The samples of updates ``first`` to ``last``, in their order, (N,)."""
        begin = (epoch - 1) * self.updates
        chosen = [self.batches.positions(update)[0] for update in range(first - 1 - begin, last - begin)]
        return self.order.at(self.drawn(epoch), np.concatenate(chosen))

    def update_of(self, epoch: int, samples: list[int]) -> dict[int, int]:
        """The update of an epoch in which each of these samples is due, without those that the epoch does not take."""
        found: dict[int, int] = {}
        step = max(1, CHUNK // self.batches.batch_size)
        begin = (epoch - 1) * self.updates
        wanted = np.array(samples)
        for first in range(1, self.updates + 1, step):
            last = min(first + step - 1, self.updates)
            own = self.samples(epoch, begin + first, begin + last)
            for at in np.flatnonzero(np.isin(own, wanted)).tolist():
                found[int(own[at])] = begin + first + at // self.batches.batch_size
        return found

    def hashed(self) -> Iterator[np.ndarray]:
        """All samples, CHUNK at a time."""
        for start in range(0, self.size, CHUNK):
            yield np.arange(start, min(start + CHUNK, self.size))
