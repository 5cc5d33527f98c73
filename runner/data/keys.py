"""Random numbers that depend on (seed, epoch, sample) alone: keys of samples, NumPy's permutations, additive hashes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ORDER = np.uint64(0x6F72646572000000)  # separates the keys of orders from those of samples
_TAKEN = 0x7461_6B65_6E00  # the seed of hashes of taken samples: the same for all runs, and used for nothing else


def sample_keys(seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
    """A 64-bit key for each sample: three rounds of SplitMix64 (Steele, Lea and Flood 2014) as a hash.

    indices: (N,) integers; returns (N,) uint64.
    """
    return splitmix(_epoch_key(seed, epoch) ^ indices.astype(np.uint64))


@lru_cache(maxsize=8)
def _epoch_key(seed: int, epoch: int) -> np.uint64:
    """The first two rounds, which are the same for all samples."""
    with np.errstate(over="ignore"):  # only scalars warn of it, not arrays
        key: np.uint64 = splitmix(splitmix(np.uint64(seed % 2**64)) ^ np.uint64(epoch))
    return key


def copy_keys(keys: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Keys for copies of samples, (N,) uint64: copy 0 keeps the sample's key, further ones get others."""
    return np.where(copies == 0, keys, splitmix(keys ^ copies.astype(np.uint64)))


def alternating_keys(keys: np.ndarray, *, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
    """The keys with other lowest bits: drawn once per sample, then flipped from epoch to epoch; (N,) uint64."""
    return keys & ~np.uint64(1) | (sample_keys(seed, 0, indices) ^ np.uint64(epoch)) & np.uint64(1)


def splitmix(value: Any) -> Any:
    """The finalizer of SplitMix64, of uint64 numbers or arrays: a random function of them."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


@lru_cache(maxsize=64)
def keys_of(seed: int, epoch: int, part: int = 0, *, count: int) -> tuple[np.uint64, ...]:
    """``count`` keys for the order of an epoch, or of a part of it."""
    with np.errstate(over="ignore"):
        key = splitmix(_epoch_key(seed, epoch) ^ _ORDER ^ np.uint64(part))
        return tuple(splitmix(key ^ np.uint64(number)) for number in range(count))


def permutation(size: int, *, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch's samples: NumPy's legacy generator, whose stream is promised never to change."""
    order = np.arange(size, dtype=np.int32 if size < 2**31 else np.int64)
    np.random.RandomState([seed % 2**32, seed // 2**32 % 2**32, epoch]).shuffle(order)
    return order


class Multiset(NamedTuple):
    """Which samples were taken in which epoch: the sum of a 64-bit hash of each, in halves, and their number.

    The sum does not depend on how samples are grouped.

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
    return sample_keys(_TAKEN, epoch, samples)


def added(parts: Sequence[Multiset]) -> Multiset:
    """The sum of these multisets."""
    return Multiset(*(float(sum(column)) for column in zip(*parts, strict=True))) if parts else Multiset()
