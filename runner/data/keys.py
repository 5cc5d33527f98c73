"""Random numbers that depend on (seed, epoch, sample) alone: keys of samples, and NumPy's permutations."""

from functools import lru_cache
from typing import Any

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ORDER = np.uint64(0x6F72646572000000)  # separates the keys of orders from those of samples


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
    first = sample_keys(seed, 0, indices)
    return keys & ~np.uint64(1) | (first ^ np.uint64(epoch)) & np.uint64(1)


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
