"""Where each rank's part lies in a complete tensor, so that parts are gathered, written and read on their own."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from manyheads.runner.checkpoint.rank.lazy import Lazy
from manyheads.runner.checkpoint.sharded.index import Box
from manyheads.runner.checkpoint.sharded.rank.rank_share import RankShare
from manyheads.runner.checkpoint.sharded.rank.read_sharded import Stored, zeros
from manyheads.runner.parallel.rank.model_parallel.own_parts import apart, local

if TYPE_CHECKING:
    from manyheads.runner.parallel.rank.model_parallel.strategy import ModelParallel


class Cut(NamedTuple):
    """The split of a tensor over a group along ``dim``: into ``blocks`` equal blocks, and each block by rank.

    Several blocks are for fused weights, such as query, key and value in one: each rank gets a part of each.
    """

    dim: int
    blocks: int = 1

    def part(self, tensor: Tensor, rank: int, size: int) -> Tensor:
        """The part (..., n / size, ...) of ``rank`` from the complete tensor (..., n, ...)."""
        blocks = tensor.unflatten(self.dim, (self.blocks, -1))
        return blocks.chunk(size, dim=self.dim + 1)[rank].flatten(self.dim, self.dim + 1).contiguous()

    def whole(self, parts: list[Tensor]) -> Tensor:
        """The complete tensor (..., n, ...) from the parts of all ranks, in rank order."""
        blocks = [part.unflatten(self.dim, (self.blocks, -1)) for part in parts]
        return torch.cat(blocks, dim=self.dim + 1).flatten(self.dim, self.dim + 1)


class MeshPlace(NamedTuple):
    """The position of this rank's part in a tensor.

    ``shape``: the complete tensor's; ``boxes``: the boxes of it that this rank has, each with its box in this rank's
    part.
    """

    shape: tuple[int, ...]
    boxes: tuple[tuple[Box, tuple[slice, ...]], ...]


def place_of(weight: Tensor, cut: Cut | None, ranks: "ModelParallel") -> MeshPlace:
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
        part = zeros(local(weight).shape, self._stored.dtype)
        for box, inner in self._place.boxes:
            self._stored.read_into(part[inner], box)
        if not isinstance(weight, DTensor):
            return part
        mesh, placed = weight.device_mesh, weight.placements
        return DTensor.from_local(part.to(self._device), mesh, placed, shape=weight.shape, stride=weight.stride())


class CutLater(Lazy):
    """This rank's part of a tensor on disk, all of which is read on demand. ``part``: cuts it like ``weight``."""

    def __init__(self, complete: Lazy, weight: Tensor, part: Callable[[Tensor], Tensor]):
        self._read, self._part = complete.read, part
        self.shape, self.dtype = weight.shape, complete.dtype

    def read(self) -> Tensor:
        part = self._part(self._read())
        return part if isinstance(part, DTensor) else apart(part)


class Assembly:
    """Converts between this rank's parts of a model's tensors and the complete ones.

    ``weights``: this rank's tensors of the model; ``cuts``: how a tensor-parallel group splits them; both by name.
    """

    def __init__(self, ranks: "ModelParallel", weights: Mapping[str, Tensor], cuts: Mapping[str, Cut]):
        self._ranks, self.own, self.cuts = ranks, weights, cuts

    def _whole(self, name: str, part: Tensor) -> Tensor:
        """The complete tensor. A collective operation of all ranks that share it."""
        tensor, weight = part.detach(), self.own.get(name)
        if isinstance(weight, DTensor):
            if not isinstance(tensor, DTensor):  # the optimizer's state, or a gradient
                mesh, placed = weight.device_mesh, weight.placements
                tensor = DTensor.from_local(tensor, mesh, placed, shape=weight.shape, stride=weight.stride())
            tensor = tensor.full_tensor()
        if (cut := self.cuts.get(name)) is None:
            return tensor
        parts = [
            torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self._ranks.sizes.tensor)
        ]
        dist.all_gather(parts, tensor.contiguous(), group=self._ranks.tensor_group)
        return cut.whole(parts)

    def part(self, name: str, tensor: Any) -> Any:
        """This rank's part of ``tensor``: the model's tensor of this name, or the optimizer's state for it."""
        weight, cut, ranks = self.own[name], self.cuts.get(name), self._ranks
        if isinstance(tensor, Lazy):
            box = place_of(weight, cut, ranks)
            if box.shape != tuple(tensor.shape):
                return tensor
            if isinstance(tensor, Stored):
                return StoredPart(tensor, weight, box, ranks.device)
            return CutLater(tensor, weight, lambda complete: self.part(name, complete))
        if cut is not None and tensor.ndim > cut.dim and tensor.shape[cut.dim] % (cut.blocks * ranks.sizes.tensor) == 0:
            tensor = cut.part(tensor, ranks.place_in.tensor, ranks.sizes.tensor)
        if not isinstance(weight, DTensor) or tensor.shape != weight.shape:  # another model's: loading it reports that
            return tensor
        return distribute_tensor(
            tensor.to(ranks.device),
            weight.device_mesh,
            weight.placements,
            src_data_rank=None,  # every rank has the data
        )

    def gathered(self, tensors: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
        """All complete tensors, on the CPU of rank 0; empty elsewhere. A collective operation of all ranks.

        ``tensors``: in the same order on all ranks that share them.
        """
        ranks, is_first = self._ranks, self._ranks.rank == 0
        if ranks.sizes.pipeline == 1:
            complete = ((key, self._whole(key[0], tensor)) for key, tensor in tensors.items())  # one at a time
            return {key: full.to("cpu", copy=True) for key, full in complete if is_first}
        return self._sent(tensors)

    def _sent(self, tensors: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
        """As ``gathered``, for tensors of which some are on other stages than rank 0's."""
        ranks = self._ranks
        mine = [(key, self._whole_shape(key[0]), tensor.dtype) for key, tensor in tensors.items()]
        listed = ranks.gather(mine if ranks.speaks else [])
        received: dict[tuple[str, str], Tensor] = {}
        wanted = [(key, rank, shape, dtype) for rank, keys in enumerate(listed) for key, shape, dtype in keys]
        sender: dict[tuple[str, str], tuple[int, tuple[int, ...], torch.dtype]] = {}
        for key, rank, shape, dtype in wanted:
            sender.setdefault(key, (rank, shape, dtype))  # a weight on several stages is sent once
        for key, (rank, shape, dtype) in sender.items():
            full = self._whole(key[0], tensors[key]) if key in tensors else None
            if ranks.rank == 0 and rank != 0:
                full = torch.empty(shape, dtype=dtype, device=ranks.device)
                dist.recv(full, src=rank)
            elif ranks.rank == rank != 0:
                assert full is not None
                dist.send(full.contiguous(), dst=0)
            if ranks.rank == 0:
                assert full is not None
                received[key] = full.to("cpu", copy=True)
        return received

    def _whole_shape(self, name: str) -> tuple[int, ...]:
        shape = list(self.own[name].shape)
        if (cut := self.cuts.get(name)) is not None:
            shape[cut.dim] *= self._ranks.sizes.tensor
        return tuple(shape)

    def share(self, name: str, part: Tensor, *, is_agreed: bool) -> RankShare:
        """This rank's part of a tensor, with its position in the complete one."""
        position, own = place_of(self.own[name], self.cuts.get(name), self._ranks), local(part).detach()
        pieces = tuple((box, own[inner]) for box, inner in position.boxes)
        return RankShare(position.shape, own.dtype, pieces, is_agreed)
