"""Rows of a Hugging Face data set as they come, as samples."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from manyheads.runner.run.checkpoint_places import StateDict


class Rows(IterableDataset[Any]):
    """A sample for each of the ``rows``, a ``datasets.IterableDataset``, which keeps its position and divides itself.

    ``attributes``: of the data set of samples, such as its classes.
    """

    def __init__(self, rows: Any, sample: Callable[[Any], Any], **attributes: Any):
        self._rows, self._sample, self._attributes = rows, sample, attributes
        vars(self).update(attributes)

    @property
    def num_shards(self) -> int:
        """The number of files."""
        return int(self._rows.num_shards)

    def shard(self, num_shards: int, index: int) -> "Rows":
        """One of ``num_shards`` parts, each of which has some files."""
        return type(self)(self._rows.shard(num_shards, index), self._sample, **self._attributes)

    def __iter__(self) -> Iterator[Any]:
        return map(self._sample, self._rows)

    def set_epoch(self, epoch: int) -> None:
        self._rows.set_epoch(epoch)

    def state_dict(self) -> StateDict:
        """Where the reading is."""
        return {"rows": self._rows.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where the reading was."""
        self._rows.load_state_dict(state["rows"])


class RowBlocks(Rows):
    """Tokens of all rows, one after another, in blocks of ``size``, each with the next tokens as its labels."""

    size: int
    _left: Sequence[int] = ()
    _at = 0  # of the first of them that is due

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rows = iter(self._rows)
        while True:
            while len(self._left) - self._at > self.size:
                block = torch.tensor(self._left[self._at : self._at + self.size + 1])
                self._at += self.size
                yield block[:-1], block[1:]
            if not (row := next(rows, None)):
                return
            self._left, self._at = [*self._left[self._at :], *self._sample(row)], 0

    def state_dict(self) -> StateDict:
        """Where the reading is."""
        return {**super().state_dict(), "left": [*self._left[self._at :]]}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where the reading was."""
        super().load_state_dict(state)
        self._left, self._at = state["left"], 0
