"""Random numbers that depend on (seed, epoch, sample) alone, and the state of the process's own generators."""

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from manyheads.runner.checkpoint.sharded.rank.rank_share import StateDict

GENERATORS = ("torch", "random", "numpy")  # what a sample may draw from
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ORDER = np.uint64(0x6F72646572000000)  # separates what orders are drawn from from the keys of samples


def sample_keys(seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
    """A 64-bit key for each sample: three rounds of SplitMix64 (Steele, Lea and Flood 2014) as a hash.

    indices: (N,) integers; returns (N,) uint64.
    """
    return splitmix(_epoch_key(seed, epoch) ^ indices.astype(np.uint64))


@lru_cache(maxsize=8)
def _epoch_key(seed: int, epoch: int) -> np.uint64:
    """The first two rounds, which are the same for all samples."""
    with np.errstate(over="ignore"):  # of which only single numbers warn
        key: np.uint64 = splitmix(splitmix(np.uint64(seed % 2**64)) ^ np.uint64(epoch))
    return key


def copy_keys(keys: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Other keys for further copies of samples, (N,) uint64; the first one, 0, keeps its own."""
    return np.where(copies == 0, keys, splitmix(keys ^ copies.astype(np.uint64)))


def alternating_keys(keys: np.ndarray, *, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
    """The keys with lowest bits that are drawn once for each sample, and change from epoch to epoch; (N,) uint64."""
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


def seed_sample(key: int, generators: Collection[str] = GENERATORS) -> None:
    """Seed the generators that a sample draws from; ``generators``: of "torch", "random" and "numpy"."""
    if "torch" in generators:
        torch.default_generator.manual_seed(key)  # a hundred times quicker than torch.manual_seed
    if "random" in generators:
        random.seed(key)
    if "numpy" in generators:
        np.random.seed(key & 0xFFFFFFFF)


@contextmanager
def restored(generators: Collection[str]) -> Iterator[None]:
    """A context that leaves these generators of the process unchanged; with "torch" also those of the current GPU."""
    with ExitStack() as stack:
        if "torch" in generators:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                stack.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state())
        if "random" in generators:
            stack.callback(random.setstate, random.getstate())
        if "numpy" in generators:
            stack.callback(np.random.set_state, np.random.get_state())
        yield


def seed_everything(seed: int) -> None:
    """Seed this process's generators: torch's, also of GPUs, Python's and NumPy's."""
    torch.manual_seed(seed)  # CUDA generators too
    random.seed(seed)
    np.random.seed(seed % 2**32)


def get_state() -> StateDict:
    """The generators' state in values that ``torch.load(weights_only=True)`` accepts."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: StateDict = {
        "torch": torch.get_rng_state(),
        "random": [version, torch.tensor(internal, dtype=torch.int64), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_state(state: StateDict) -> None:
    """Put this process's generators back to what ``get_state`` returned."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["random"]
    random.setstate((version, tuple(internal.tolist()), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
