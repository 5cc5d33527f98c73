"""How a tensor-parallel group splits a tensor, and how ranks that share a model gather it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from manyheads.runner.checkpoint.sharded.rank.rank_share import RankShare
from manyheads.runner.checkpoint.sharded.rank.read_sharded import Stored
from manyheads.runner.parallel.rank.model_parallel.own_parts import local
from manyheads.runner.parallel.rank.model_parallel.shares import StoredPart, place_of

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
        if isinstance(tensor, Stored):
            box = place_of(weight, cut, ranks)
            return StoredPart(tensor, weight, box, ranks.device) if box.shape == tuple(tensor.shape) else tensor
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
            complete = {}
            for key, tensor in tensors.items():
                full = self._whole(key[0], tensor)
                if is_first:
                    complete[key] = full.to("cpu", copy=True)
                del full
            return complete
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
        position = place_of(self.own[name], self.cuts.get(name), self._ranks)
        return position.share(local(part).detach(), is_agreed=is_agreed)
