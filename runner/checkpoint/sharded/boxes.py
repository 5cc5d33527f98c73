"""Boxes: the position and shape of a piece within a tensor."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A block of a tensor's entries: ``shape`` of them from ``offset``, along each dimension; both () for a scalar."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> "Box":
        return cls((0,) * len(shape), tuple(shape))

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def overlap(self, other: "Box") -> "Box | None":
        """The entries that both boxes contain; None if there are none."""
        offset = tuple(map(max, self.offset, other.offset))
        ends = (min(a + m, b + n) for a, m, b, n in zip(*self, *other, strict=True))
        shape = tuple(end - begin for begin, end in zip(offset, ends, strict=True))
        return Box(offset, shape) if all(size > 0 for size in shape) else None

    def inside(self, other: "Box") -> tuple[slice, ...]:
        """The slices of this box in a tensor that holds the box ``other``."""
        begins = [a - b for a, b in zip(self.offset, other.offset, strict=True)]
        return tuple(slice(begin, begin + size) for begin, size in zip(begins, self.shape, strict=True))

    def __str__(self) -> str:
        """Such as ``[0:16, 8:12]``."""
        return f"[{', '.join(f'{begin}:{begin + size}' for begin, size in zip(*self, strict=True))}]"
