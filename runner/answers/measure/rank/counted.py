"""Counts what an update allocates, what its forward pass saves for the backward pass, and what it sends.

By torch's dispatch modes and its hooks on saved tensors, while code runs on fake tensors.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from manyheads.runner.answers.measure.findings import Traffic
from manyheads.runner.answers.measure.rank.fake_models import replaced
from manyheads.runner.parallel.rank.structure import tensors_in


class Allocated(TorchDispatchMode):
    """Counts storages created while this mode is active, except on meta. ``now``, ``most``: current and peak bytes.

    ``at_most``: called at each new peak.
    """

    def __init__(self, at_most: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.now = self.most = 0
        self.at_most = at_most
        self._known: dict[int, tuple[weakref.ref, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, FakeTensor) and leaf.device.type != "meta":
                self.note(leaf.untyped_storage())
        return result

    def note(self, storage: torch.UntypedStorage) -> None:
        """Count a storage with its current size."""
        key, size = storage._cdata, storage.nbytes()
        counted = self._known.get(key)
        if counted is not None and counted[1] == size:
            return
        if counted is None:
            self._known[key] = weakref.ref(storage, lambda _: self._forget(key)), size
        else:
            self._known[key] = counted[0], size
        self.now += size - (0 if counted is None else counted[1])
        if self.now > self.most:
            self.most = self.now
            self.at_most()

    def _forget(self, key: int) -> None:
        _, size = self._known.pop(key)
        self.now -= size

    def resizes(self) -> AbstractContextManager[None]:
        """Track storages that are resized in place, as FSDP's are."""
        before = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            before(storage, size)
            if storage._cdata in self._known:
                self.note(storage)
            return storage

        return replaced(torch.UntypedStorage, "resize_", resize)


class SavedTensors:
    """``now``, ``most``: current and peak bytes of saved tensors. Shared memory counts once, parameters do not."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._holders: Counter[int] = Counter()  # number of saved tensors, by storage
        self._weights: set[int] = set()

    @contextmanager
    def counting(self, model: nn.Module) -> Iterator[None]:
        """A context that counts all tensors except the parameters of ``model`` and their replacements by a strategy."""
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
        parameters = map(_local, module.parameters(recurse=not self._weights))
        self._weights |= {parameter.untyped_storage()._cdata for parameter in parameters if not parameter.is_meta}

    def keep(self, key: int, size: int) -> None:
        """Count a saved tensor. ``key``: its storage; ``size``: bytes of that storage."""
        if key not in self._weights:
            self._holders[key] += 1
            if self._holders[key] == 1:
                self.now += size
                self.most = max(self.most, self.now)

    def release(self, key: int, size: int) -> None:
        """Stop counting a saved tensor of this storage, which the graph has freed."""
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


KINDS = {  # by prefix of the operation's name, without underscores
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "send": "send",
    "recv": "receive",
    "alltoall": "all-to-all",
}


class CountedTraffic(TorchDispatchMode):
    """``by_kind``: the calls of each kind, with the bytes of the complete tensors gathered, reduced or sent."""

    def __init__(self) -> None:
        super().__init__()
        self.by_kind: dict[str, Traffic] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        if func.namespace in ("c10d", "_c10d_functional"):
            self._count(func, args)
        return func(*args, **(kwargs or {}))

    def _count(self, func: Callable[..., Any], args: Any) -> None:
        name = str(func).split(".")[1].replace("_", "")
        kind = next((kind for begin, kind in KINDS.items() if name.startswith(begin)), None)
        if kind is not None:
            before = self.by_kind.get(kind, Traffic(0, 0))
            largest = max(sum(tensor.nbytes for tensor in tensors_in(given)) for given in args[:2])
            self.by_kind[kind] = Traffic(before.calls + 1, before.bytes + largest)
