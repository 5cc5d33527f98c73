"""The mesh of ranks when several share one model, computed without torch."""

from collections.abc import Mapping
from typing import NamedTuple


class Layout(NamedTuple):
    """Sizes of a mesh of ranks, or a rank's coordinates in one, from 0. Ranks of a ``tensor`` group are adjacent.

    ``pipeline``: number of consecutive stages that the model's layers are cut into; ``replicate``: copies of the
    dimensions after it; ``shard``: shards of each weight, gathered when it is needed; ``tensor``: ranks that share the
    arithmetic of each layer.
    """

    pipeline: int = 1
    replicate: int = 1
    shard: int = 1
    tensor: int = 1

    @property
    def ranks(self) -> int:
        return self.pipeline * self.replicate * self.shard * self.tensor

    @property
    def data_size(self) -> int:
        """Number of parts that a batch is divided into."""
        return self.replicate * self.shard

    def place_of(self, rank: int) -> "Layout":
        """The coordinates of a rank."""
        places = []
        for size in reversed(self):
            rank, coordinate = divmod(rank, size)
            places.append(coordinate)
        return Layout(*reversed(places))

    def rank_of(self, coordinates: "Layout") -> int:
        """The rank at these coordinates; the inverse of ``place_of``."""
        rank = 0
        for size, coordinate in zip(self, coordinates, strict=True):
            rank = rank * size + coordinate
        return rank

    def data_rank(self, coordinates: "Layout") -> int:
        """The index of the part of a batch that the rank at these coordinates takes."""
        return coordinates.replicate * self.shard + coordinates.shard

    def __str__(self) -> str:
        """The dimensions larger than 1, such as ``2 pipeline x 4 shard``."""
        parts = [f"{size} {name}" for name, size in self._asdict().items() if size > 1]
        return " x ".join(parts) or "1 rank"


def filled(sizes: Mapping[str, int | str], *, ranks: int) -> Layout:
    """The mesh of these sizes, where "auto" becomes ``ranks`` divided by the other sizes.

    Raises ValueError if that is not a whole number, or if several are "auto".
    """
    fixed = {name: int(size) for name, size in sizes.items() if size != "auto"}
    rest, product = [name for name in sizes if name not in fixed], Layout(**fixed).ranks
    if len(rest) > 1 or ranks % product or (not rest and ranks != product):
        raise ValueError(f"a mesh of {dict(sizes)} does not fit {ranks} ranks")
    return Layout(**fixed, **dict.fromkeys(rest, ranks // product))
