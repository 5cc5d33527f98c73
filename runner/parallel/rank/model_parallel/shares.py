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
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel
    from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Cut


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


def place_of(weight: Tensor, cut: "Cut | None", ranks: "ModelParallel") -> MeshPlace:
    """The position of this rank's ``weight``, which may be a shard (DTensor), of a part (``cut``) or of the whole."""
    ranges = _ranges(weight)
    shape = list(weight.shape)
    if cut is None:
        return MeshPlace(tuple(shape), tuple(_boxes(ranges, ranges)))
    shape[cut.dim] *= ranks.sizes.tensor
    length = weight.shape[cut.dim] // cut.blocks
    boxes: list[tuple[Box, tuple[slice, ...]]] = []
    for block in range(cut.blocks):
        inner = [*ranges]
        inner[cut.dim] = range(
            max(ranges[cut.dim].start, block * length), min(ranges[cut.dim].stop, (block + 1) * length)
        )
        moved = [*inner]
        ahead = block * length * (ranks.sizes.tensor - 1) + ranks.place_in.tensor * length
        moved[cut.dim] = range(inner[cut.dim].start + ahead, inner[cut.dim].stop + ahead)
        boxes += _boxes(moved, inner, ranges)
    return MeshPlace(tuple(shape), tuple(boxes))


def _ranges(weight: Tensor) -> list[range]:
    """The indices that this rank has along each dimension; for a shard, those that torch.chunk gives it."""
    ranges = [range(size) for size in weight.shape]
    if isinstance(weight, DTensor):
        coordinates = weight.device_mesh.get_coordinate() or ()
        for coordinate, size, placement in zip(coordinates, weight.device_mesh.shape, weight.placements, strict=True):
            if isinstance(placement, Shard):
                count = -(-weight.shape[placement.dim] // size)
                begin = min(coordinate * count, weight.shape[placement.dim])
                ranges[placement.dim] = range(begin, min(begin + count, weight.shape[placement.dim]))
        assert tuple(map(len, ranges)) == tuple(local(weight).shape), "an unknown way of sharding"
    return ranges


def _boxes(
    where: list[range], inner: list[range], held: list[range] | None = None
) -> Iterator[tuple[Box, tuple[slice, ...]]]:
    """The box ``where`` with its box in a rank's part, whose origin is that of ``held``; nothing if it is empty."""
    begins = [span.start for span in (inner if held is None else held)]
    box = Box(tuple(span.start for span in where), tuple(map(len, where)))
    if box.numel:
        slices = [slice(span.start - begin, span.stop - begin) for span, begin in zip(inner, begins, strict=True)]
        yield box, tuple(slices)


class StoredPart(Lazy):
    """This rank's part of a stored tensor, sharded and cut like ``weight``; read on demand."""

    def __init__(self, stored: Stored, weight: Tensor, position: MeshPlace, device: torch.device):
        self._stored, self._own, self._place, self._device = stored, weight, position, device
        self.shape, self.dtype = weight.shape, stored.dtype

    def read(self) -> Tensor:
        weight = self._own
        part = torch.zeros(local(weight).shape, dtype=self._stored.dtype)
        for box, inner in self._place.boxes:
            self._stored.read_into(part[inner], box)
        if not isinstance(weight, DTensor):
            return part
        mesh, placed = weight.device_mesh, weight.placements
        return DTensor.from_local(part.to(self._device), mesh, placed, shape=weight.shape, stride=weight.stride())
