"""An additive hash of which samples were taken in which epoch: its sum does not depend on how they are grouped."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manyheads.runner.data.keys import sample_keys

_SEED = 0x7461_6B65_6E00  # the same for all runs, and used for nothing else


class Multiset(NamedTuple):
    """The sum of a 64-bit hash of each (epoch, sample), in halves, and the number of samples.

    All are whole numbers in double precision, exact as long as fewer than 2**21 of them are added up.
    """

    count: float = 0.0  # type: ignore[assignment]  # tuple.count is of no use here
    low: float = 0.0
    high: float = 0.0

    @property
    def value(self) -> int:
        """The sum modulo 2**64."""
        return (int(self.low) + (int(self.high) << 32)) % 2**64

    @property
    def digest(self) -> str:
        return f"{self.value:016x}"

    @classmethod
    def of(cls, epoch: int, samples: np.ndarray) -> "Multiset":
        """The multiset of these samples, (N,) integers, in an epoch counted from 0."""
        return cls.summed(len(samples), int(hashes(epoch, samples).sum(dtype=np.uint64)))  # which wraps around

    @classmethod
    def summed(cls, count: int, total: int) -> "Multiset":
        """The multiset of ``count`` samples whose hashes add up to ``total``, modulo 2**64."""
        return cls(float(count), float(total % 2**32), float(total >> 32))


TakenSamples = tuple[int, np.ndarray] | Multiset  # an epoch, from 0, and samples taken in it; or their multiset


def hashes(epoch: int, samples: np.ndarray) -> np.ndarray:
    """The hash of each sample in an epoch, (N,) uint64."""
    return sample_keys(_SEED, epoch, samples)


def added(parts: Sequence[Multiset]) -> Multiset:
    """The sum of these multisets."""
    return Multiset(*(float(sum(column)) for column in zip(*parts, strict=True))) if parts else Multiset()
