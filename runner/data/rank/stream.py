"""Samples that come one after another, taken by their position, so that ranks, loader processes and resume agree."""

import os
from collections import deque
from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

from manyheads.runner.data.keys import keys_of
from manyheads.runner.data.rank.dataset_wrapper import DatasetWrapper
from manyheads.runner.data.rank.digests import sample_digest
from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import Parallel

CHECKED = 8  # samples that are read twice on each rank at the start
PASS, SAMPLE = 2, 3  # parts of the keys of random numbers


class Stream(DatasetWrapper):
    """The samples of an iterable ``dataset``, with ``size`` of them in an epoch, None for as many as one pass has.

    ``multiple_of``: of which number the size of a training epoch is a multiple; what is left comes in the next one.
    Sample i of epoch e is at position e * size + i of the stream, which begins anew whenever it ends; ``set_epoch`` of
    the data set is then called with the number of the pass. Every process reads the stream in sequence, and skips the
    samples that others take. To go back, as a resumed run does at its start, it reads from the beginning of a pass, if
    the data set has a length, and else of the stream. Torch's, Python's and NumPy's generators are seeded for each pass
    and each sample.

    ``name``: of the data set, for messages. Raises ConfigurationError for a stream whose epoch has no known size.
    """

    def __init__(self, dataset: Any, *, size: int | None, multiple_of: int, is_train: bool, name: str):
        super().__init__(dataset)
        self._name, self._seed, self._first = name, 0, 0
        self._length = len(dataset) if isinstance(dataset, Sized) else None
        if self._length is None and not is_train:
            with restored(GENERATORS):
                self._length = sum(1 for _ in dataset)
        self._size = size if size is not None and is_train else self._length
        if not self._size:
            given = "has no __len__" if self._size is None else "has no samples"
            rest = f" {given}. Set data.epoch_samples, the number of training samples in an epoch."
            raise ConfigurationError.at("data._target_", name, rest)
        if is_train and self._size > multiple_of:
            self._size -= self._size % multiple_of
        self._items: Iterator[Any] | None = None
        self._process, self._pass, self._begin, self._next = 0, 0, 0, 0  # positions: of the pass, and of what comes
        self._recent: deque[Any] = deque(maxlen=1)

    def __len__(self) -> int:
        assert self._size is not None
        return self._size

    def set_epoch(self, epoch: int) -> None:
        """Let samples be those of a training epoch, counted from 0."""
        self._first = epoch * len(self)

    def begin(self, parallel: Parallel, *, seed: int, batch_size: int) -> None:
        """Seed what the stream draws, and check that all ranks read the same samples, each time they read them.

        ``batch_size``: the number of latest samples that are kept. Raises ConfigurationError.
        """
        self._seed, self._recent = seed, deque(maxlen=batch_size)
        with restored(GENERATORS):
            first, again = self._first_digests(), self._first_digests()
        ranks = parallel.gather(first)
        if first != again:
            raise self._refused(
                "gives other samples when it is read again. Draw from torch, random or numpy.random, which are seeded "
                "for each sample, and keep no position: __iter__ begins anew."
            )
        if any(digests != first for digests in ranks):
            raise self._refused(
                "gives other samples on other ranks. Let it give all samples on each rank: the run divides them."
            )

    def __getitem__(self, index: int) -> Any:
        position = self._first + index
        if self._items is None or self._process != os.getpid() or position < self._next - len(self._recent):
            self._rewind(position)
        while self._next <= position:
            self._recent.append(self._read())
            self._next += 1
        return self._recent[position - self._next]

    def _first_digests(self) -> list[bytes]:
        """Digests of the stream's first samples, which are read from its beginning, now and later."""
        self._items = None
        digests = [sample_digest(self[index]) for index in range(min(CHECKED, len(self)))]
        self._items = None
        return digests

    def _rewind(self, position: int) -> None:
        """Begin to read before ``position``, in this process, which may have been forked from one that reads."""
        number = position // self._length if self._length else 0
        self._process, self._begin = os.getpid(), number * (self._length or 0)
        self._next = self._begin
        self._recent.clear()
        self._start(number)

    def _start(self, number: int) -> None:
        self._pass = number
        seed_sample(int(keys_of(self._seed, number, PASS, count=1)[0]))
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(number)
        self._items = iter(self.dataset)

    def _read(self) -> Any:
        """The sample at the next position."""
        assert self._items is not None
        seed_sample(int(keys_of(self._seed, self._next, SAMPLE, count=1)[0]))
        try:
            for sample in islice(self._items, 1):
                if self._next - self._begin == self._length:
                    raise self._refused(f"gives more than the {self._length:,} samples of its __len__.")
                return sample
        except ConfigurationError:
            raise
        except Exception:
            self._items = None  # most iterators have ended after an error
            raise
        count = self._next - self._begin
        if not count or (self._length is not None and count < self._length):
            rest = f", and its __len__ is {self._length:,}" if self._length is not None else ""
            raise self._refused(f"gives {count:,} samples in pass {self._pass + 1}{rest}.")
        self._begin = self._next
        self._start(self._pass + 1)
        return self._read()

    def _refused(self, reason: str) -> ConfigurationError:
        return ConfigurationError.at("data._target_", self._name, f" {reason}")
