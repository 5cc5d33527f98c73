"""The order that a sampler of ``data.sampler`` gives, the same on any number of ranks and loader processes."""

from collections.abc import Iterable, Sequence, Sized
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DistributedSampler

from manyheads.runner.data.data_option import SAMPLERS
from manyheads.runner.data.keys import keys_of
from manyheads.runner.data.order import Order
from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.data.samples import Dataset
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import arguments_of, call, combined, locate, signature
from manyheads.runner.option.tree import TARGET, Section

PART = 1  # of an epoch's keys: the others are those of the usual orders
EPOCHS_KEPT = 2  # loader processes already build the next epoch's first batches at the end of one


class DrawnOrder(Order):
    """An epoch's samples are those that iterating over ``sampler`` gives: numbers, or lists of them, one per batch.

    Torch's, Python's and NumPy's generators are seeded by ``seed`` and the epoch for it, and ``set_epoch(epoch)`` is
    called if it has that method. ``samples``: number of training samples; ``name``: what data.sampler says.

    Raises ConfigurationError for what no training can use, and for a sampler that gives other samples when it is asked
    twice for the same epoch.
    """

    def __init__(self, sampler: Any, *, samples: int, batch_size: int, seed: int, name: str):
        self._sampler, self._name = sampler, name
        self._samples, self._batch_size, self._seed = samples, batch_size, seed
        if isinstance(sampler, DistributedSampler):
            raise self._refused("divides the samples among ranks, as the run does itself. Name the sampler within it.")
        if not (isinstance(sampler, Iterable) and isinstance(sampler, Sized)):
            raise self._refused("needs __iter__, which gives an epoch's samples, and __len__, their number.")
        first = self._draw(0)
        self._draw(1)
        if not np.array_equal(first, self._draw(0)):
            raise self._refused(
                "gives other samples when it is asked twice for the same epoch, so ranks would disagree and no run "
                "could be resumed. Draw from torch, random or numpy.random, which are seeded for each epoch, and keep "
                "no count of epochs: set_epoch(epoch) says which one it is."
            )
        self.size = len(first)
        self._epoch = lru_cache(maxsize=EPOCHS_KEPT)(self._checked)
        self.summary = f"sampler {name}: {self.size:,} samples of {samples:,} in an epoch"

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return self._epoch(epoch)[positions]

    def _checked(self, epoch: int) -> np.ndarray:
        order = self._draw(epoch)
        if len(order) != self.size:
            raise self._refused(
                f"gives {len(order):,} samples in epoch {epoch + 1}, and {self.size:,} in the first. All epochs need "
                "the same number."
            )
        return order

    def _draw(self, epoch: int) -> np.ndarray:
        """An epoch's samples, (N,) int64."""
        with restored(GENERATORS):
            seed_sample(int(keys_of(self._seed, epoch, PART, count=1)[0]))
            if hasattr(self._sampler, "set_epoch"):
                self._sampler.set_epoch(epoch)
            count = len(self._sampler)
            items = [*islice(self._sampler, count + 1)]
        if len(items) != count or not items:
            given = "none" if not items else f"more than {count:,}" if len(items) > count else f"{len(items):,}"
            raise self._refused(f"has {count:,} items by its __len__, and gives {given}.")
        order = self._numbers(items)
        if len(unfit := order[(order < 0) | (order >= self._samples)]):
            raise self._refused(f"gives sample {unfit[0]}, and samples are numbered 0 to {self._samples - 1}.")
        return order

    def _numbers(self, items: Sequence[Any]) -> np.ndarray:
        """The items as one sequence of numbers, (N,) int64; lists of them must be the run's batches."""
        has_batches = np.ndim(items[0]) > 0
        try:
            batches = [np.asarray(batch) for batch in items] if has_batches else [np.asarray(items)]
            order = np.concatenate([batch for batch in batches if batch.size])
        except ValueError:  # numbers and lists
            order = np.empty(0)
        if order.ndim != 1 or order.dtype.kind not in "iu":
            raise self._refused(f"gives {items[0]!r}, which is neither the number of a sample nor a list of them.")
        sizes = [len(batch) for batch in batches[:-1]] + [max(len(batches[-1]), self._batch_size)]
        if has_batches and (unfit := [size for size in sizes if size != self._batch_size]):
            raise self._refused(
                f"gives a batch of {unfit[0]:,} samples, and data.batch_size is {self._batch_size:,}, for all ranks "
                "together. Let it take batch_size, which the run passes."
            )
        return order.astype(np.int64)

    def _refused(self, reason: str) -> ConfigurationError:
        return ConfigurationError.at("data.sampler", self._name, f" {reason}")


def build_drawn_order(sampler: str | Section, train: Dataset, *, batch_size: int, seed: int) -> DrawnOrder:
    """The order of these training samples that data.sampler asks for. Raises ConfigurationError."""
    section = {TARGET: SAMPLERS[sampler]} if isinstance(sampler, str) else sampler
    target = section[TARGET]
    name = sampler if isinstance(sampler, str) else target.rpartition(".")[2].rpartition(":")[2]
    kind = locate("data.sampler", target)
    given = {"batch_size": batch_size} if "batch_size" in signature(kind).parameters else {}
    arguments = combined("data.sampler", arguments_of("data.sampler", section, without=()), given)
    try:
        drawn = call("data.sampler", target, kind, train, **arguments)
    except ConfigurationError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError.at("data.sampler._target_", target, f" can't be created: {error}") from error
    return DrawnOrder(drawn, samples=len(train), batch_size=batch_size, seed=seed, name=name)
