"""How the ranks of a tensor group share a tensor, and what has to be known of ranks to put it together again."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Cut(NamedTuple):
    """How the ranks of a tensor group share a tensor: along ``dim``, each of whose ``blocks`` equal blocks is cut."""

    dim: int
    blocks: int = 1

    def part(self, whole: Tensor, rank: int, size: int) -> Tensor:
        """The rank's own part, (..., n / size, ...)."""
        blocks = whole.unflatten(self.dim, (self.blocks, -1))
        return blocks.chunk(size, dim=self.dim + 1)[rank].flatten(self.dim, self.dim + 1).contiguous()

    def whole(self, parts: list[Tensor]) -> Tensor:
        """From the parts of all ranks, in order."""
        blocks = [part.unflatten(self.dim, (self.blocks, -1)) for part in parts]
        return torch.cat(blocks, dim=self.dim + 1).flatten(self.dim, self.dim + 1)


class Ranks(Protocol):
    """What has to be known of the ranks.

    ``tensor_group``: those that hold parts of the same tensors by a Cut, None for one; ``tensor_rank``,
    ``tensor_size``: in it; ``is_staged``: whether others hold other tensors; ``is_speaker``: whether this rank sends
    what those of its stage have; ``gather``: a value of each rank.
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
