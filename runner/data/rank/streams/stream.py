"""Samples that come one after another, taken by their position, so that ranks, loader processes and resume agree."""

import io
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sized
from copy import deepcopy
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

import torch

from manyheads.runner.data.keys import keys_of
from manyheads.runner.data.rank.digests import sample_digest
from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.data.samples import DatasetWrapper
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import Parallel

CHECKED = 8  # samples that are read twice on each rank at the start
PASS, SAMPLE = 2, 3  # parts of the keys of random numbers


class Reached(NamedTuple):
    """``position``: of the next sample; ``begin``: the position at which pass ``number`` begins; ``state``: there."""

    position: int
    begin: int
    number: int
    state: Any


class Stream(DatasetWrapper):
    """The samples of an iterable ``dataset``, with ``size`` of them in an epoch, None for as many as one pass has.

    ``multiple_of``: of which number the size of a training epoch is a multiple; what is left comes in the next one.
    Sample i of epoch e is at position e * size + i of the stream, which begins anew whenever it ends; ``set_epoch`` of
    the data set is then called with the number of the pass. Every process reads the stream in sequence, and skips the
    samples that others take. To go back, as a resumed run does at its start, it continues from the state that a
    checkpoint has, of a data set with ``state_dict`` and ``load_state_dict``; else it reads from the beginning of a
    pass, if the data set has a length, and else of the stream. Torch's, Python's and NumPy's generators are seeded for
    each pass and each sample.

    ``name``, ``key``: of the data set, for messages; ``batch_size``: the number of latest samples that are kept;
    ``has_length``: whether the number of samples in a pass is known; ``seed``: of what the stream draws; ``identity``:
    a digest of the first samples; ``keeps_state``: whether checkpoints have the data set's state. Raises
    ConfigurationError for a stream whose epoch has no known size.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        size: int | None,
        multiple_of: int,
        batch_size: int,
        is_train: bool,
        name: str,
        key: str = "data._target_",
    ):
        super().__init__(dataset)
        self._name, self._key, self.seed, self._first, self._is_train = name, key, 0, 0, is_train
        self.dataset: Any
        has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        self._beginning = deepcopy(dataset.state_dict()) if has_state else None
        self.keeps_state, self.identity = False, ""
        self._length = len(dataset) if isinstance(dataset, Sized) else None
        if self._length is None and not is_train:
            with restored(GENERATORS):
                self._length = sum(1 for _ in dataset)
        self._size = size if size is not None and is_train else self._length
        if not self._size:
            given = "has no __len__" if self._size is None else "has no samples"
            rest = f" {given}. Set data.epoch_samples, the number of training samples in an epoch."
            raise ConfigurationError.at(key, name, rest)
        if is_train and self._size > multiple_of:
            self._size -= self._size % multiple_of
        self._items: Iterator[Any] | None = None
        self.has_length = self._length is not None
        self._process, self._pass, self._begin, self._next = 0, 0, 0, 0  # positions: of the pass, and of what comes
        self._recent: deque[Any] = deque(maxlen=batch_size)
        self._saved: Reached | None = None

    def __len__(self) -> int:
        assert self._size is not None
        return self._size

    @property
    def summary(self) -> str:
        """How samples are read, for the header."""
        return f"stream: samples as they come, which each rank reads completely; {self.resuming}"

    @property
    def resuming(self) -> str:
        """From where a resumed run reads, for the header."""
        if self.keeps_state:
            return "a resumed run continues at its position"
        begin = "the stream" if self._length is None else "a pass"
        why = "it has no state_dict" if self._beginning is None else "its state_dict leads to other samples"
        return f"a resumed run reads again from the beginning of {begin}, since {why}"

    def set_epoch(self, epoch: int) -> None:
        """Let samples be those of a training epoch, counted from 0."""
        self._first = epoch * len(self)

    def begin(self, parallel: Parallel, *, seed: int) -> None:
        """Seed what the stream draws, and check that all ranks read the same samples, each time they read them.

        Also finds out whether the data set's state leads to the same samples. Raises ConfigurationError.
        """
        self.seed = seed
        with restored(GENERATORS):
            first, again = self._first_digests(), self._first_digests()
            exact = self._is_train and self._beginning is not None and self._continues(again)
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
        self.keeps_state, self.identity = all(parallel.gather(exact)), sha256(b"".join(first)).hexdigest()

    def __getitem__(self, index: int) -> Any:
        return self.at(self._first + index)

    def at(self, position: int) -> Any:
        """The sample at a position of the stream, from 0."""
        is_behind = self._saved is not None and self._next < self._saved.position <= position
        is_kept = position >= self._next - len(self._recent)
        if self._items is None or self._process != os.getpid() or is_behind or not is_kept:
            self._rewind(position)
        while self._next <= position:
            self._recent.append(self._read())
            self._next += 1
        return self._recent[position - self._next]

    def reached(self) -> Mapping[int, Reached]:
        """Where reading is in this process, with the data set's state; empty without one that leads there."""
        if not self.keeps_state or self._items is None or self._process != os.getpid():
            return {}
        return {0: Reached(self._next, self._begin, self._pass, deepcopy(self.dataset.state_dict()))}

    def resume(self, reached: Mapping[int, Reached]) -> None:
        """Let this process, and those that it forks, read from where a checkpoint was, if that is not too far."""
        self._saved = reached.get(0) if self.keeps_state else None

    def _first_digests(self) -> list[bytes]:
        """Digests of the stream's first samples, which are read from its beginning, now and later."""
        self._items = None
        digests = [sample_digest(self.at(position)) for position in range(min(CHECKED, len(self)))]
        self._items = None
        return digests

    def _continues(self, digests: list[bytes]) -> bool:
        """Whether a checkpoint can keep the data set's state, which leads to the same samples."""
        half = len(digests) // 2
        _ = [self.at(position) for position in range(half)]
        try:
            self._saved = Reached(self._next, self._begin, self._pass, saved(self.dataset.state_dict()))
            _ = [self.at(position) for position in range(half, len(digests))]
            self._items = None
            return [sample_digest(self.at(position)) for position in range(half, len(digests))] == digests[half:]
        except Exception:  # of the user's class, or of what a checkpoint can't hold
            return False
        finally:
            self._saved, self._items = None, None

    def _rewind(self, position: int) -> None:
        """Begin to read before ``position``, in this process, which may have been forked from one that reads."""
        self._process = os.getpid()
        self._recent.clear()
        if self._saved is not None and self._saved.position <= position:
            self._next, self._begin, number, state = self._saved
            self._start(number, state)
            return
        number = position // self._length if self._length else 0
        self._begin = self._next = number * (self._length or 0)
        self._start(number, self._beginning)

    def _start(self, number: int, state: Any) -> None:
        """Begin to read pass ``number``, in this ``state``, None if the data set has none."""
        self._pass = number
        seed_sample(int(keys_of(self.seed, number, PASS, count=1)[0]))
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(number)
        if state is not None:
            self.dataset.load_state_dict(deepcopy(state))
        self._items = iter(self.dataset)

    def _read(self) -> Any:
        """The sample at the next position."""
        assert self._items is not None
        seed_sample(int(keys_of(self.seed, self._next, SAMPLE, count=1)[0]))
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
        self._start(self._pass + 1, self._beginning)
        return self._read()

    def _refused(self, reason: str) -> ConfigurationError:
        return ConfigurationError.at(self._key, self._name, f" {reason}")


def saved(state: Any) -> Any:
    """A state as it comes back from a checkpoint. Raises an error of pickle's for what checkpoints can't hold."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)
