"""Counts what the forward pass saves for the backward pass, by torch's hooks on saved tensors."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class SavedTensors:
    """``now``, ``most``: current and peak bytes of saved tensors. Shared memory counts once, parameters do not."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._holders: Counter[int] = Counter()  # of each piece of memory
        self._weights: set[int] = set()

    @contextmanager
    def counting(self, model: nn.Module) -> Iterator[None]:
        """A context that counts all but the parameters of ``model`` and what a strategy replaces them by meanwhile."""
        handles = [
            module.register_forward_pre_hook(self._note_weights)
            for module in model.modules()
            if module._parameters or not [*module.children()]
        ]
        self._note_weights(model)
        try:
            with saved_tensors_hooks(lambda tensor: _Held(self, tensor), lambda held: held.tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _note_weights(self, module: nn.Module, *_: Any) -> None:
        own = module.parameters(recurse=not self._weights)
        self._weights |= {each.untyped_storage()._cdata for each in map(_local, own) if not each.is_meta}

    def keep(self, key: int, size: int) -> None:
        if key not in self._weights:
            self._holders[key] += 1
            if self._holders[key] == 1:
                self.now += size
                self.most = max(self.most, self.now)

    def release(self, key: int, size: int) -> None:
        if key in self._holders:
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
                self.now -= size


class _Held:
    """A saved tensor; lives as long as the graph needs it."""

    def __init__(self, counter: SavedTensors, tensor: Tensor):
        self.counter, self.tensor = counter, tensor.detach()
        storage = self.tensor.untyped_storage()
        self.key, self.size = storage._cdata, storage.nbytes()
        counter.keep(self.key, self.size)

    def __del__(self) -> None:
        self.counter.release(self.key, self.size)


def _local(tensor: Any) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
