"""Shared memory in which a loader process passes batches to its rank, reused once nothing refers to a batch.

It has no name and belongs to no file system, so the size of /dev/shm does not matter, and the kernel frees it when the
processes have ended, however they ended. Writing to new memory takes ten times as long, since each page is cleared.
"""

import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

ALIGNMENT = 64  # bytes


class BatchSlot:
    """Memory for one batch at a time, with its bytes in ``content``.

    ``handle``: its descriptor, which this closes; ``size``: in bytes.
    """

    def __init__(self, handle: int, size: int):
        self.size = size
        try:
            self.content = mmap.mmap(handle, size)
        finally:
            os.close(handle)

    def memory(self, released: Callable[[], Any] | None = None) -> Tensor:
        """Its bytes, (size,) uint8. ``released`` is called once no tensor shares them any more."""
        view = memoryview(self.content)
        if released is not None:
            weakref.finalize(view, released).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8)


def new_memory(size: int) -> int:
    """Allocate anonymous shared memory of ``size`` bytes; returns its descriptor."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("manyheads-batch")
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return handle


class Location(NamedTuple):
    """Where a slot holds a tensor: from byte ``offset`` on, in ``shape``, whose values are repeated up to ``size``.

    ``stride``: as torch's, of a tensor without gaps.
    """

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    size: tuple[int, ...]

    def values(self, memory: Tensor) -> Tensor:
        """The values in the slot's memory, in ``shape``."""
        length = torch.Size(self.shape).numel() * self.dtype.itemsize
        return memory[self.offset : self.offset + length].view(self.dtype).as_strided(self.shape, self.stride)


class Filling:
    """Puts one batch into a slot. ``slot``: None if there is none yet."""

    def __init__(self, slot: BatchSlot | None):
        self._memory = torch.empty(0, dtype=torch.uint8) if slot is None else slot.memory()
        self._outside, self._inside = list[tuple[Tensor, Location]](), list[tuple[Tensor, Location]]()
        self.needs = 0  # bytes

    def collate(self, samples: Sequence[Any]) -> Any:
        """Collate as torch's default_collate does, and stack tensors in the slot if it has room for them."""
        return collate(samples, collate_fn_map={**default_collate_fn_map, Tensor: self._stack})

    def pack(self, value: Any) -> bytes:
        """Pickle a value; tensors in it are replaced by their places."""
        file = BytesIO()
        _Packer(file, self._place).dump(value)
        return file.getvalue()

    def complete(self, slot: BatchSlot) -> None:
        """Copy to a slot what is not in it yet: tensors that were not stacked here, or all, to another slot."""
        memory = slot.memory()
        is_other = memory.data_ptr() != self._memory.data_ptr()
        for tensor, location in (*self._outside, *(self._inside if is_other else ())):
            location.values(memory).copy_(tensor)

    def _stack(self, samples: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
        first = samples[0]
        if all(_is_plain(sample) and sample.dtype == first.dtype for sample in samples):
            if _is_channels_last(first):  # as the batch will be
                return self._stacked([sample.permute(1, 2, 0) for sample in samples]).permute(0, 3, 1, 2)
            return self._stacked(samples)
        return collate_tensor_fn(samples, collate_fn_map=collate_fn_map)

    def _stacked(self, samples: Sequence[Tensor]) -> Tensor:
        before, shape = self.needs, (len(samples), *samples[0].shape)
        location = self._reserve(samples[0].dtype, shape, torch.empty(shape, device="meta").stride())
        if self.needs <= len(self._memory):
            return torch.stack(tuple(samples), out=location.values(self._memory))
        self.needs = before
        return torch.stack(tuple(samples))

    def _reserve(self, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> Location:
        offset = -(-self.needs // ALIGNMENT) * ALIGNMENT
        self.needs = offset + torch.Size(shape).numel() * dtype.itemsize
        return Location(offset, dtype, shape, stride, shape)

    def _place(self, tensor: Any) -> Location | None:
        if not _is_plain(tensor):
            return None
        once = tensor.detach()[tuple(slice(None) if stride else slice(1) for stride in tensor.stride())]
        shape, stride = tuple(once.shape), torch.empty_like(once, device="meta").stride()  # without gaps
        offset = once.data_ptr() - self._memory.data_ptr()
        if 0 <= offset < len(self._memory) and once.stride() == stride:
            location = Location(offset, once.dtype, shape, stride, tuple(tensor.shape))
            self._inside.append((once, location))
        else:
            location = self._reserve(once.dtype, shape, stride)._replace(size=tuple(tensor.shape))
            self._outside.append((once, location))
        return location


def unpack(content: bytes, memory: Tensor) -> Any:
    """The value that was packed, whose tensors share the slot's memory."""
    return _Unpacker(BytesIO(content), memory).load()


def _is_channels_last(sample: Tensor) -> bool:
    """Whether it is an image (C, H, W) in channels_last; one that is contiguous too, as of a single channel, is not."""
    return sample.ndim == 3 and len(sample) > 1 and sample.stride(0) == 1 and not sample.is_contiguous()


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor and value.layout is torch.strided and value.device.type == "cpu"


class _Packer(pickle.Pickler):
    def __init__(self, file: BytesIO, locate: Callable[[Any], Location | None]):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.persistent_id = locate  # type: ignore[method-assign]


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: BytesIO, memory: Tensor):
        super().__init__(file)
        self._memory = memory

    def persistent_load(self, location: Location) -> Tensor:
        return location.values(self._memory).expand(location.size)
