"""How ranks are laid out when several share one model; found without torch."""

from typing import NamedTuple


class Layout(NamedTuple):
    """Sizes of a mesh of ranks, or a rank's place in one, counted from 0. Ranks of one ``tensor`` group are neighbours.

    ``pipeline``: number of consecutive parts that the model's layers are cut into; ``replicate``: copies of all that
    follows; ``shard``: shards that each weight is cut into, put together when it is needed; ``tensor``: ranks that
    share the arithmetic of each layer.
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
        """Into how many shares a batch is cut."""
        return self.replicate * self.shard

    def place_of(self, rank: int) -> "Layout":
        """Where a rank is."""
        places = []
        for size in reversed(self):
            rank, place = divmod(rank, size)
            places.append(place)
        return Layout(*reversed(places))

    def rank_of(self, place: "Layout") -> int:
        """Who is there; the inverse of ``place_of``."""
        rank = 0
        for size, coordinate in zip(self, place, strict=True):
            rank = rank * size + coordinate
        return rank

    def data_rank(self, place: "Layout") -> int:
        """Which share of a batch the rank at that place takes."""
        return place.replicate * self.shard + place.shard

    def __str__(self) -> str:
        """Such as ``2 pipeline x 4 shard``."""
        parts = [f"{size} {name}" for name, size in self._asdict().items() if size > 1]
        return " x ".join(parts) or "1 rank"
