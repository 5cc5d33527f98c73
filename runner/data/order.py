"""The order of an epoch's samples: which sample is at which position, from the seed and the epoch alone."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from manyheads.runner.data.keys import keys_of, permutation, splitmix

LARGE = 10_000_000  # samples; for more, a permutation in memory takes seconds and 40 MB per rank
CHECKED = 20  # batches
ROUNDS = 6  # with four, adjacent samples stay adjacent 1.4 times as often as in a random order


class Order(Protocol):
    """Each epoch takes every one of ``size`` samples once.

    ``summary``: for the run's header, empty if it is usual; ``mixes_locally``: whether samples that are near each other
    in the data are taken at about the same time.
    """

    size: int
    summary: str
    mixes_locally: bool = False

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """The samples at these positions, from 0; (N,) integers in and out."""


class Shuffle(Order):
    """NumPy's legacy shuffle, whose stream is promised never to change; four bytes of memory for each sample."""

    summary = ""

    def __init__(self, size: int, *, seed: int):
        self.size, self._seed = size, seed
        self._epoch, self._order = -1, np.empty(0, np.int32)

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        if epoch != self._epoch:
            self._epoch, self._order = epoch, permutation(self.size, seed=self._seed, epoch=epoch)
        return self._order[positions]


class InOrder(Order):
    """The order in which a stream gives its samples."""

    summary = "stream: samples as they come"

    def __init__(self, size: int):
        self.size = size

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return positions


class Feistel(Order):
    """A permutation that is computed: no memory, and no time before an epoch, whatever the number of samples."""

    summary = "feistel: computed, not kept in memory"

    def __init__(self, size: int, *, seed: int):
        self.size, self._seed = size, seed

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return permuted(positions, size=self.size, keys=keys_of(self._seed, epoch, count=ROUNDS))


class BlockOrder(Order):
    """Adjacent samples stay near each other in time: for storage on which reading a single sample is slow.

    Blocks of ``block`` adjacent samples are permuted; then the samples of each ``window`` consecutive blocks are
    shuffled. The last block of the data, which may be shorter, gets a random position among the others.
    """

    mixes_locally = True

    def __init__(self, size: int, *, seed: int, block: int, window: int):
        self.size, self._seed, self.block, self.window = size, seed, block, window
        self._full, self._rest = divmod(size, block)
        self.summary = f"blocks of {block:,} samples, {window:,} mixed at once"

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        keys = keys_of(self._seed, epoch, count=ROUNDS + 1)
        short = int(keys[-1] % np.uint64(self._full + 1))  # the position of the shorter block
        mixed = np.empty(len(positions), np.int64)
        numbers = self._place(positions, short) // self.window
        by_number = np.argsort(numbers, kind="stable")
        windows, starts = np.unique(numbers[by_number], return_index=True)
        for number, chosen in zip(windows.tolist(), np.split(by_number, starts[1:]), strict=False):  # both may be empty
            low, high = (self._start((number + after) * self.window, short) for after in (0, 1))
            round_keys = keys_of(self._seed, epoch, number + 1, count=ROUNDS)
            mixed[chosen] = low + permuted(positions[chosen] - low, size=high - low, keys=round_keys)
        places = self._place(mixed, short)
        within = mixed - places * self.block + np.where(places > short, self.block - self._rest, 0)
        blocks = np.where(places == short, self._full, places - (places > short))
        is_full = blocks < self._full
        blocks[is_full] = permuted(blocks[is_full], size=self._full, keys=keys[:-1])
        return blocks * self.block + within

    def _place(self, positions: np.ndarray, short: int) -> np.ndarray:
        """The number in the epoch's order of the block that each position is in."""
        is_behind = positions >= short * self.block + self._rest
        return (positions + np.where(is_behind, self.block - self._rest, 0)) // self.block

    def _start(self, position: int, short: int) -> int:
        """The position at which the block at this place begins."""
        return min(self.size, position * self.block - (self.block - self._rest if position > short else 0))


def permuted(values: np.ndarray, *, size: int, keys: Sequence[np.uint64]) -> np.ndarray:
    """A permutation of 0 to ``size`` - 1 at these values, (N,) int64; a round for each key.

    A Feistel network over rows x columns cells, slightly more than ``size``; results beyond ``size`` are permuted again
    until they are within it (cycle walking). Source: Black and Rogaway 2002 (https://doi.org/10.1007/3-540-45760-7_9).
    """
    rows = math.isqrt(max(0, size - 1)) + 1
    columns = max(1, -(-size // rows))
    cells = _network(values.astype(np.uint64), rows, columns, keys)
    while len(outside := np.flatnonzero(cells >= np.uint64(size))):
        cells[outside] = _network(cells[outside], rows, columns, keys)
    return cells.astype(np.int64)


def _network(cells: np.ndarray, rows: int, columns: int, keys: Sequence[np.uint64]) -> np.ndarray:
    sides = np.uint64(rows), np.uint64(columns)
    halves = list(np.divmod(cells, sides[1]))
    for number, key in enumerate(keys):
        one, other = number % 2, 1 - number % 2
        halves[one] = (halves[one] + splitmix(halves[other] ^ key) % sides[one]) % sides[one]
    return halves[0] * sides[1] + halves[1]


def build_order(kind: str, size: int, *, seed: int, block: int | None, window: int | None) -> Order:
    """The order that data.order asks for. ``block``, ``window``: data.order_block and data.order_window, for blocks."""
    if kind == "auto":
        kind = "feistel" if size > LARGE else "shuffle"
    if kind == "stream":
        return InOrder(size)
    if kind == "blocks":
        assert block is not None
        assert window is not None
        return BlockOrder(size, seed=seed, block=block, window=window)
    return Feistel(size, seed=seed) if kind == "feistel" else Shuffle(size, seed=seed)


def quality(order: Order, targets: Sequence[int] | None, *, batch_size: int) -> str:
    """How close batches are to those of a full shuffle, measured in CHECKED batches of the first epoch.

    ``targets``: the class of each sample, None if samples have none.
    """
    shuffled = Feistel(order.size, seed=0)
    starts = np.linspace(0, max(0, order.size - batch_size), CHECKED).astype(np.int64)
    batches = [np.arange(start, min(start + batch_size, order.size)) for start in starts.tolist()]
    moved, classes = [], []
    for candidate in (order, shuffled):
        samples = [candidate.at(0, positions) for positions in batches]
        moved.append(np.mean([np.abs(indices - at).mean() for indices, at in zip(samples, batches, strict=True)]))
        if targets is not None:
            classes.append(np.mean([len({int(targets[index]) for index in indices.tolist()}) for indices in samples]))
    words = [f"samples move by {moved[0] / order.size:.2f} of the data (shuffle: {moved[1] / order.size:.2f})"]
    if targets is not None:
        words.insert(0, f"{classes[0]:.0f} classes in a batch (shuffle: {classes[1]:.0f})")
    return ", ".join(words)
