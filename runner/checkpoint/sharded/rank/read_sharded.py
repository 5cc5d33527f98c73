"""Reads sharded checkpoints lazily: of each tensor, only the part that is requested, when it is requested."""

import math
import mmap
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.dtypes import DTYPES
from manyheads.runner.checkpoint.rank.lazy import Lazy, RankGroup, real, refuse_tensor_bombs
from manyheads.runner.checkpoint.sharded import index as index_file
from manyheads.runner.checkpoint.sharded.index import Box, CheckpointIndex, Piece, TensorEntry
from manyheads.runner.checkpoint.sharded.rank.rank_share import from_json, with_versions
from manyheads.runner.run.checkpoint_places import INDEX, Damaged, StateDict
from manyheads.runner.run.data_files import no_link

LARGE = ("model", "optimizer", "rng", "parallel")  # parts whose tensors are read on use
SMALL = 2**16  # bytes; as many systems allow a process no more than this number of mappings
UNTOUCHED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class Stored(Lazy):
    """A complete tensor of a sharded checkpoint, still on disk."""

    def __init__(self, folder: Path, entry: TensorEntry):
        self._folder, self._entry = folder, entry
        self.shape, self.dtype = torch.Size(entry.kind.shape), DTYPES[entry.kind.dtype]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self._entry.kind.size

    def read(self) -> Tensor:
        tensor = zeros(self.shape, self.dtype)
        self.read_into(tensor, Box.whole(self.shape))
        return tensor

    def read_into(self, target: Tensor, box: Box) -> None:
        """Read the part ``box`` into ``target``. Needs no more memory than one piece's rows that contain it."""
        for piece in self._entry.pieces:
            if (common := piece.box.overlap(box)) is not None:
                self._fill(target[common.inside(box)], piece, common)

    def _fill(self, target: Tensor, piece: Piece, common: Box) -> None:
        """Read the box ``common`` of a piece into ``target``; complete rows of the piece at a time."""
        if not common.shape:
            rows, inner = piece.box, common.inside(common)
        else:
            rows = Box((common.offset[0], *piece.box.offset[1:]), (common.shape[0], *piece.box.shape[1:]))
            inner = common.inside(rows)
        is_direct = rows == common and target.is_contiguous()
        read = target if is_direct else zeros(rows.shape, self.dtype)
        row = rows.numel // rows.shape[0] if rows.shape else 0
        skipped = row * (rows.offset[0] - piece.box.offset[0]) if rows.shape else 0
        with open(self._folder / piece.file, "rb", opener=no_link) as file:
            file.seek(piece.begin + skipped * self.dtype.itemsize)
            if file.readinto(bytes_of(read)) != read.nbytes:
                raise OSError(f"{self._folder / piece.file} ends too early")
        if not is_direct:
            target.copy_(read[inner])


def memory(size: int) -> torch.UntypedStorage:
    """``size`` bytes that take no space until they are touched, and return to the system when they are freed.

    Memory freed to the allocator would be split by small allocations, and the next tensor would not fit into it.
    """
    buffer = mmap.mmap(-1, max(size, 1), flags=UNTOUCHED)
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor of zeros on the CPU, in ``memory`` of its own if it is large."""
    if (size := math.prod(shape) * dtype.itemsize) < SMALL:
        return torch.zeros(tuple(shape), dtype=dtype)
    return torch.empty(0, dtype=dtype).set_(memory(size), 0, shape)  # type: ignore[call-overload]


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, to be read or written."""
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def opened(folder: Path, ranks: RankGroup | None = None) -> StateDict:
    """A checkpoint's state, with the tensors of its LARGE parts as Stored, after verifying all its files.

    ``ranks``: the ranks that open it together, each of which verifies a part of the files. Raises Damaged, the same on
    each rank; OSError.
    """
    index, wrong = None, None
    try:
        index = index_file.read(folder)
        wrong = index_file.wrong_with(folder, index, _mine(index, ranks))
    except FileNotFoundError:
        wrong = f"{INDEX} is missing"
    except ValueError as error:
        wrong = str(error)
    errors = [wrong] if ranks is None else ranks.gather(wrong)
    if any(errors) or index is None:
        raise Damaged(next(filter(None, errors)))
    stored = {key: Stored(folder, entry) for key, entry in index.tensors.items()}
    try:
        state = from_json(index.state, stored)
        if isinstance(versions := state.pop("versions", None), dict):
            state["model"] = with_versions(state["model"], versions)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise Damaged(f"{INDEX} is not the index of a checkpoint") from None
    refuse_tensor_bombs(state, sum(part.size for part in index.files.values()))
    return {name: value if name in LARGE else real(value) for name, value in state.items()}


def _mine(index: CheckpointIndex, ranks: RankGroup | None) -> list[str]:
    """The files that this rank verifies: each one belongs to a rank, the largest first to the least loaded one."""
    if ranks is None:
        return [*index.files]
    load = [0] * ranks.world_size
    mine = []
    for name, part in sorted(index.files.items(), key=lambda file: (-file[1].size, file[0])):
        rank = load.index(min(load))
        load[rank] += part.size
        if rank == ranks.rank:
            mine.append(name)
    return mine
