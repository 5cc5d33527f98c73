"""Weights on disk for a model that is built without its values; they are read when its tensors get theirs."""

import copy
import ctypes
import mmap
import re
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.lazy import Lazy, replaced
from manyheads.runner.checkpoint.sharded.rank.read_sharded import LARGE, zeros
from manyheads.runner.run.checkpoint_places import StateDict

FEW = 2**10  # elements; fewer are read at once
DONTNEED = 4  # of madvise
OF_A_FILE = re.compile(r"(\w+)-(\w+) r\S* \w+ \w+:\w+ [1-9]\d* ")  # a line of /proc/self/maps


class Mapped(Lazy):
    """A tensor in a file that is mapped into memory, none of which is kept."""

    def __init__(self, tensor: Tensor):
        self._tensor, self.shape, self.dtype = tensor, tensor.shape, tensor.dtype

    def read(self) -> Tensor:
        start, values = self._tensor.data_ptr(), zeros(self.shape, self.dtype).copy_(self._tensor)
        begin, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, start + self._tensor.nbytes
        if (size := (end - begin) // mmap.PAGESIZE * mmap.PAGESIZE) > 0:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), DONTNEED)
        return values


def stand_ins(weights: StateDict) -> StateDict:
    """The weights with tensors on meta in place of large ones, whose ``stands_for`` is the tensor on disk."""
    files = _mapped_files()
    others = copy.copy(weights)  # with the version numbers that some modules need for loading
    others |= {name: _stand_in(value, files) for name, value in weights.items() if isinstance(value, (Tensor, Lazy))}
    return others


def put_off(state: StateDict) -> StateDict:
    """The content of a mapped file, with its large parts' tensors as Mapped, and copies of all others."""
    files = _mapped_files()

    def changed(tensor: Tensor, *, is_large: bool) -> Tensor | Mapped:
        return Mapped(tensor) if is_large and _is_mapped(tensor, files) else tensor.clone()

    return {name: replaced(value, Tensor, partial(changed, is_large=name in LARGE)) for name, value in state.items()}


def _stand_in(value: Tensor | Lazy, files: list[range]) -> Tensor:
    if torch.Size(value.shape).numel() < FEW:
        return value.read() if isinstance(value, Lazy) else value
    hollow = torch.empty(value.shape, dtype=value.dtype, device="meta")
    is_mapped = isinstance(value, Tensor) and _is_mapped(value, files)
    hollow.stands_for = Mapped(value) if is_mapped else value  # type: ignore[arg-type, attr-defined]
    return hollow


def _is_mapped(tensor: Tensor, files: list[range]) -> bool:
    """Whether it can be read from its file again; small ones are not worth it."""
    return tensor.numel() >= FEW and tensor.is_contiguous() and any(tensor.data_ptr() in file for file in files)


def _mapped_files() -> list[range]:
    """The addresses at which files are mapped, which alone can be read again; none on systems that do not say so."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    return [range(int(match[1], 16), int(match[2], 16)) for line in lines if (match := OF_A_FILE.match(line))]
