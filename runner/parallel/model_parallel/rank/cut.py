"""How a tensor-parallel group splits a tensor, and what has to be known of its ranks to gather it."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Cut(NamedTuple):
    """How a tensor-parallel group splits a tensor along ``dim``: into ``blocks`` equal blocks, and each block by rank.

    Several blocks are for fused weights, such as query, key and value in one: each rank gets a part of each.
    """

    dim: int
    blocks: int = 1

    def part(self, whole: Tensor, rank: int, size: int) -> Tensor:
        """The part (..., n / size, ...) of ``rank`` from the complete tensor (..., n, ...)."""
        blocks = whole.unflatten(self.dim, (self.blocks, -1))
        return blocks.chunk(size, dim=self.dim + 1)[rank].flatten(self.dim, self.dim + 1).contiguous()

    def whole(self, parts: list[Tensor]) -> Tensor:
        """The complete tensor (..., n, ...) from the parts of all ranks, in rank order."""
        blocks = [part.unflatten(self.dim, (self.blocks, -1)) for part in parts]
        return torch.cat(blocks, dim=self.dim + 1).flatten(self.dim, self.dim + 1)


class Ranks(Protocol):
    """This rank's place among those that share a model.

    ``tensor_group``: the ranks that hold parts of the same tensors by a Cut, None if only this one does;
    ``tensor_rank``, ``tensor_size``: this rank in it, and its size; ``is_staged``: whether other ranks hold other
    tensors, as in a pipeline; ``is_speaker``: whether this rank sends its stage's tensors; ``gather``: collects a value
    from each rank.
    """

    rank: int
    device: torch.device

    @property
    def tensor_group(self) -> Any: ...
    @property
    def tensor_rank(self) -> int: ...
    @property
    def tensor_size(self) -> int: ...
    @property
    def is_staged(self) -> bool: ...
    @property
    def is_speaker(self) -> bool: ...
    def gather(self, value: Any) -> list[Any]: ...
