"""Tracks the memory of all tensors while code runs on fake ones, and its peak."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
        known = self._known.get(key)
        if known is not None and known[1] == size:
            return
        if known is None:
            self._known[key] = weakref.ref(storage, lambda _: self._forget(key)), size
        else:
            self._known[key] = known[0], size
        self.now += size - (0 if known is None else known[1])
        if self.now > self.most:
            self.most = self.now
            self.at_most()

    def _forget(self, key: int) -> None:
        _, size = self._known.pop(key)
        self.now -= size

    @contextmanager
    def resizes(self) -> Iterator[None]:
        """Track storages that are resized in place, as FSDP's are."""
        before = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            before(storage, size)
            if storage._cdata in self._known:
                self.note(storage)
            return storage

        torch.UntypedStorage.resize_ = resize  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = before  # type: ignore[method-assign]
