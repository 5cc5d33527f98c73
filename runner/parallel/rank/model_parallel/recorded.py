"""How a model's large tensors are computed, so that each can be computed alone, when it is needed."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.lazy import real, replaced
from manyheads.runner.checkpoint.sharded.rank.read_sharded import memory
from manyheads.runner.parallel.rank.structure import tensors_in


class Unrecordable(Exception):
    """A constructor does what can't be recorded; its model has to be built as usual."""


class StorageView(NamedTuple):
    """A tensor in the recorded storage of this number."""

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype


@dataclass
class GivenTensor:
    """A tensor with values that an operation takes. ``version``: after which a change would go unnoticed."""

    tensor: Any
    version: int | None = None

    def value(self) -> Tensor:
        if self.version is not None and self.tensor._version != self.version:
            raise Unrecordable("a tensor was changed after it had been copied from")
        return real(self.tensor)


@dataclass
class RecordedOperation:
    """A recorded operation. ``arguments``: positional and by name, with tensors as StorageView or GivenTensor.

    ``creates``: its outputs, in new storages; ``reads``, ``writes``: numbers of storages; ``state``: of
    the generator before it draws.
    """

    function: Any
    arguments: tuple[Any, Any]
    creates: list[StorageView]
    reads: set[int]
    writes: set[int]
    state: Tensor | None

    @property
    def changes(self) -> set[int]:
        return self.writes | self._fresh

    @property
    def overwrites(self) -> set[int]:
        """Storages whose earlier content does not matter, since all of it is replaced."""
        return self._fresh | (self.writes - self.reads)

    @property
    def _fresh(self) -> set[int]:
        return {view.storage for view in self.creates}


@dataclass
class OperationRecord:
    """Operations in their order. ``sizes``: of the storages that they create, in bytes, by number."""

    steps: list[RecordedOperation] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def stored(self, wanted: StorageView) -> Any:
        """The tensor on disk that a recorded one is a copy of; None if it is not, or has another shape or dtype."""
        last = next((step for step in reversed(self.steps) if wanted.storage in step.changes), None)
        if last is None or last.function.overloadpacket is not torch.ops.aten.copy_:
            return None
        target, source = last.arguments[0][:2]
        if target != wanted or wanted.storage not in last.overwrites or not isinstance(source, GivenTensor):
            return None
        is_same = (tuple(source.tensor.shape), source.tensor.dtype) == (wanted.shape, wanted.dtype)
        return source.tensor if is_same and source.version is None else None

    def value(self, wanted: StorageView) -> Tensor:
        """A recorded tensor's values on the CPU, computed anew. Raises what its operations raise, and Unrecordable."""
        needed, live = {wanted.storage}, list[RecordedOperation]()
        for step in reversed(self.steps):
            if needed & step.changes:
                live.append(step)
                needed = (needed - step.overwrites) | step.reads
        storages: dict[int, torch.UntypedStorage] = {}
        for step in reversed(live):
            self._repeat(step, storages)
        return self._tensor(wanted, storages)

    def _repeat(self, step: RecordedOperation, storages: dict[int, torch.UntypedStorage]) -> None:
        present = lambda given: given.value() if isinstance(given, GivenTensor) else self._tensor(given, storages)  # noqa: E731
        args, kwargs = replaced(step.arguments, (StorageView, GivenTensor), present)
        with torch.no_grad(), torch.random.fork_rng(devices=[], enabled=step.state is not None):
            if step.state is not None and kwargs.get("generator") is None:
                torch.set_rng_state(step.state)
            elif step.state is not None:
                kwargs = {**kwargs, "generator": torch.Generator()}
                kwargs["generator"].set_state(step.state)
            outputs = [*tensors_in(step.function(*args, **kwargs))]
        for view, output in zip(step.creates, outputs, strict=False):
            if (output.stride(), output.storage_offset()) == (view.strides, view.offset):
                storages[view.storage] = output.untyped_storage()
            else:
                self._tensor(view, storages).copy_(output)

    def _tensor(self, view: StorageView, storages: dict[int, torch.UntypedStorage]) -> Tensor:
        if view.storage not in storages:
            storages[view.storage] = memory(self.sizes[view.storage])
        return tensor_in(storages[view.storage], view)


def tensor_in(storage: torch.UntypedStorage, view: StorageView) -> Tensor:
    """The tensor that a storage holds."""
    return torch.empty(0, dtype=view.dtype).set_(storage, view.offset, view.shape, view.strides)
