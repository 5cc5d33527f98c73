"""Digests of samples: which ones a run takes, what a split holds, and what two splits have in common."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.rank.in_memory import InMemory
from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.data.samples import Dataset, FileContents
from manyheads.runner.parallel.rank.structure import map_tensors

MOST_SAMPLES = 20_000  # of a split that are read; evenly spaced if there are more
SAMPLES_READ = 8  # to find out whether a data set augments its samples


def digest_of_ids(updates: Sequence[Sequence[int]]) -> str:
    """sha256 over the numbers of the samples of each update."""
    return hashlib.sha256(json.dumps([list(map(int, update)) for update in updates]).encode()).hexdigest()


def split_digest(dataset: Dataset) -> str:
    """sha256 over the number of samples and their contents, as far as MOST_SAMPLES."""
    digest = hashlib.sha256(f"{len(dataset)}\n".encode())
    for one in sample_digests(dataset):
        digest.update(one)
    return digest.hexdigest()


def overlap(split: Dataset, *others: Dataset) -> int:
    """The number of samples with the content of a sample of ``others``, among the samples that are read."""
    digests = {one for other in others for one in sample_digests(other)}
    return sum(one in digests for one in sample_digests(split))


def are_same(one: Dataset, other: Dataset) -> bool:
    """Whether both splits have as many samples, with the same inputs in the same order, as far as MOST_SAMPLES.

    Stops at the first difference. False if a sample cannot be read.
    """
    if len(one) != len(other):
        return False
    try:
        with restored(GENERATORS):
            return all(_bytes_of(one, index) == _bytes_of(other, index) for index in _indices(len(one)))
    except Exception:  # of the user's own data set; the run reports it when it takes the sample
        return False


def sample_digests(dataset: Dataset) -> Iterator[bytes]:
    """A digest of the input of each sample, without augmentation if the data set is in memory."""
    with restored(GENERATORS):
        for index in _indices(len(dataset)):
            yield _digest(_bytes_of(dataset, index))


def _indices(size: int) -> Sequence[int]:
    if size <= MOST_SAMPLES:
        return range(size)
    return np.linspace(0, size - 1, MOST_SAMPLES).astype(int).tolist()


def varies(dataset: Dataset) -> bool:
    """Whether inputs depend on random numbers, as augmented ones do: of the first SAMPLES_READ, with as many seeds.

    False if a sample cannot be read.
    """
    count = min(SAMPLES_READ, len(dataset))
    try:
        with restored(GENERATORS):
            return any(len({_bytes_of(dataset, i, seed) for seed in range(SAMPLES_READ)}) > 1 for i in range(count))
    except Exception:  # of the user's own data set; the run reports it when it takes the sample
        return False


def _bytes_of(dataset: Any, index: int, seed: int | None = None) -> bytes:
    """The stored input of a sample: of images in memory, and of image files, before it is augmented.

    ``seed``: of what the sample draws; else its index.
    """
    if isinstance(dataset, InMemory):
        return _tensor_bytes(dataset.images[index])
    if isinstance(dataset, FileContents):
        return dataset.content(index)
    seed_sample(index if seed is None else seed)  # random transforms are those of this sample, in every split
    return _input_bytes(dataset[index])


def sample_digest(sample: Any) -> bytes:
    """A digest of a sample's input."""
    return _digest(_input_bytes(sample))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:16]


def _input_bytes(sample: Any) -> bytes:
    inputs = sample[0] if isinstance(sample, (tuple, list)) and sample else sample
    parts: list[bytes] = []
    map_tensors(lambda tensor: parts.append(_tensor_bytes(tensor)), inputs)
    if not parts and hasattr(inputs, "tobytes"):  # NumPy's arrays and Pillow's images
        return bytes(inputs.tobytes())
    return b"".join(parts) or repr(inputs).encode()


def _tensor_bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().cpu().contiguous()
    return f"{plain.dtype} {tuple(plain.shape)}".encode() + plain.reshape(-1).view(torch.uint8).numpy().tobytes()
