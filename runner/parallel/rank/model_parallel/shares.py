"""The position of each rank's part in the complete tensor, so that parts can be written and read on their own."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from manyheads.runner.checkpoint.rank.lazy import Lazy
from manyheads.runner.checkpoint.sharded.index import Box
from manyheads.runner.checkpoint.sharded.rank.rank_share import RankShare
from manyheads.runner.checkpoint.sharded.rank.read_sharded import Stored
from manyheads.runner.parallel.rank.model_parallel.own_parts import local

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Cut, TensorRanks


class MeshPlace(NamedTuple):
    """The position of this rank's part in a tensor.

    ``shape``: the complete tensor's; ``boxes``: the boxes of it that this rank has, each with its box in this rank's
    part.
    """

    shape: tuple[int, ...]
    boxes: tuple[tuple[Box, tuple[slice, ...]], ...]

    def share(self, part: Tensor, *, is_agreed: bool) -> RankShare:
        """This rank's part as a Share. ``part``: its plain tensor."""
        pieces = tuple((box, part[inner]) for box, inner in self.boxes)
        return RankShare(self.shape, part.dtype, pieces, is_agreed)


def place_of(own: Tensor, cut: "Cut | None", ranks: "TensorRanks") -> MeshPlace:
    """The position of this rank's part ``own``, which may be a shard (DTensor), of a part (``cut``) or of the whole."""
    ranges = _ranges(own)
    shape = list(own.shape)
    if cut is None:
        return MeshPlace(tuple(shape), tuple(_boxes(ranges, ranges)))
    shape[cut.dim] *= ranks.tensor_size
    length = own.shape[cut.dim] // cut.blocks
    boxes: list[tuple[Box, tuple[slice, ...]]] = []
    for block in range(cut.blocks):
        inner = [*ranges]
        inner[cut.dim] = range(
            max(ranges[cut.dim].start, block * length), min(ranges[cut.dim].stop, (block + 1) * length)
        )
        moved = [*inner]
        ahead = block * length * (ranks.tensor_size - 1) + ranks.tensor_rank * length
        moved[cut.dim] = range(inner[cut.dim].start + ahead, inner[cut.dim].stop + ahead)
        boxes += _boxes(moved, inner, ranges)
    return MeshPlace(tuple(shape), tuple(boxes))


def _ranges(own: Tensor) -> list[range]:
    """The indices that this rank has along each dimension; for a shard, those that torch.chunk gives it."""
    ranges = [range(size) for size in own.shape]
    if isinstance(own, DTensor):
        coordinates = own.device_mesh.get_coordinate() or ()
        for coordinate, size, placement in zip(coordinates, own.device_mesh.shape, own.placements, strict=True):
            if isinstance(placement, Shard):
                count = -(-own.shape[placement.dim] // size)
                begin = min(coordinate * count, own.shape[placement.dim])
                ranges[placement.dim] = range(begin, min(begin + count, own.shape[placement.dim]))
        assert tuple(map(len, ranges)) == tuple(local(own).shape), "an unknown way of sharding"
    return ranges


def _boxes(
    where: list[range], inner: list[range], held: list[range] | None = None
) -> Iterator[tuple[Box, tuple[slice, ...]]]:
    """The box ``where`` with its box in a rank's part, whose origin is that of ``held``; nothing if it is empty."""
    begins = [each.start for each in (inner if held is None else held)]
    box = Box(tuple(each.start for each in where), tuple(map(len, where)))
    if box.numel:
        slices = [slice(each.start - begin, each.stop - begin) for each, begin in zip(inner, begins, strict=True)]
        yield box, tuple(slices)


class StoredPart(Lazy):
    """This rank's part of a stored tensor, sharded and cut like ``own``; read on demand."""

    def __init__(self, stored: Stored, own: Tensor, place: MeshPlace, device: torch.device):
        self._stored, self._own, self._place, self._device = stored, own, place, device
        self.shape, self.dtype = own.shape, stored.dtype

    def read(self) -> Tensor:
        own = self._own
        part = torch.zeros(local(own).shape, dtype=self._stored.dtype)
        for box, inner in self._place.boxes:
            self._stored.read_into(part[inner], box)
        if not isinstance(own, DTensor):
            return part
        mesh, placed = own.device_mesh, own.placements
        return DTensor.from_local(part.to(self._device), mesh, placed, shape=own.shape, stride=own.stride())
