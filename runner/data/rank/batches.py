"""From a request to a batch in host memory; runs in a loader process or in the rank itself."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from manyheads.runner.data.base.option import CorruptSample, Dataset
from manyheads.runner.data.rank.sampler import Request
from manyheads.runner.random.rank.rng import get_state, sample_keys, seed_sample, set_state
from manyheads.runner.run.errors import ConfigurationError


@dataclass
class Batch:
    """One micro-batch. ``count`` and ``weight`` as in Request; ``corrupt``: paths of samples not read."""

    inputs: Tensor
    targets: Tensor
    count: int
    weight: float
    corrupt: list[str] = field(default_factory=list)

    def pin_memory(self) -> "Batch":
        self.inputs, self.targets = self.inputs.pin_memory(), self.targets.pin_memory()
        return self


class Batches:
    """A map from requests to batches. ``replace_corrupt``: by the next sample; otherwise such samples are left out."""

    def __init__(self, dataset: Dataset, *, seed: int, on_corrupt: str, replace_corrupt: bool):
        self.dataset, self.seed = dataset, seed
        self.on_corrupt, self.replace_corrupt = on_corrupt, replace_corrupt

    def __getitem__(self, request: Request) -> Batch | ConfigurationError:
        """The batch; a configuration error is returned, since raising it in a loader process would garble it."""
        keys = sample_keys(self.seed, request.epoch, request.indices)
        if hasattr(self.dataset, "batch"):
            inputs, targets = self.dataset.batch(request.indices, keys)
            return Batch(inputs, targets, request.count, request.weight)
        try:
            return self._collect(request, keys)
        except ConfigurationError as error:
            return error

    def fetch(self, request: Request) -> Batch | ConfigurationError:
        """The same in the rank's own process, whose random numbers must not notice."""
        if hasattr(self.dataset, "batch"):
            return self[request]
        state = get_state()
        try:
            return self[request]
        finally:
            set_state(state)

    def _collect(self, request: Request, keys: np.ndarray) -> Batch:
        samples: list[tuple[Any, Any]] = []
        corrupt: list[str] = []
        for index, key in zip(request.indices.tolist(), keys.tolist(), strict=True):
            sample = self._read(index, key, corrupt)
            if sample is None and self.replace_corrupt:
                sample = self._next_good(index, request.epoch, corrupt)
            if sample is not None:
                samples.append(sample)
        if not samples:
            return Batch(torch.empty(0), torch.empty(0), 0, 0.0, corrupt)
        inputs, targets = default_collate(samples)
        return Batch(inputs, targets, min(request.count, len(samples)), request.weight, corrupt)

    def _read(self, index: int, key: int, corrupt: list[str]) -> tuple[Any, Any] | None:
        seed_sample(key)
        try:
            return self.dataset[index]
        except (CorruptSample, OSError) as error:
            path = getattr(error, "path", f"sample {index}")
            if self.on_corrupt == "error":
                reason = getattr(error, "reason", error)
                raise ConfigurationError(
                    f"{path} cannot be read ({reason}). Repair or remove it, or set data.on_corrupt=skip."
                ) from None
            corrupt.append(path)
            return None

    def _next_good(self, index: int, epoch: int, corrupt: list[str]) -> tuple[Any, Any]:
        """The next readable sample in the data set's order: the same one on any number of ranks and workers."""
        size = len(self.dataset)
        for offset in range(1, size):
            after = (index + offset) % size
            key = int(sample_keys(self.seed, epoch, np.array([after]))[0])
            if (sample := self._read(after, key, [])) is not None:
                return sample
        raise ConfigurationError(f"{corrupt[-1]} cannot be read, and no other sample either. Check data.root.")
