"""The tokens of several files as one row, which is read by slices."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol


class Row(Protocol):
    """Tokens, as of a NumPy array."""

    def __len__(self) -> int: ...

    def __getitem__(self, wanted: slice) -> Any: ...

    def fetch_ahead(self, wanted: slice) -> None:
        """Request tokens without waiting; only in object storage."""


class Joined:
    """Concatenated arrays, read by slices; they are never copied as a whole."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts
        self.starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, wanted: slice) -> Any:
        import numpy as np

        pieces = [part[own] for part, own in self._pieces(wanted)]
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, self.parts[0][:0]])

    def fetch_ahead(self, wanted: slice) -> None:
        """See ``Row``."""
        for part, own in self._pieces(wanted):
            part.fetch_ahead(own)

    def _pieces(self, wanted: slice) -> Iterator[tuple[Any, slice]]:
        first, last, _ = wanted.indices(len(self))
        for part, start in zip(self.parts, self.starts, strict=False):
            if start < last and start + len(part) > first:
                yield part, slice(max(first - start, 0), max(last - start, 0))


def joined(parts: Sequence[Any]) -> Any:
    """The arrays as one that can be sliced."""
    return parts[0] if len(parts) == 1 else Joined(parts)
