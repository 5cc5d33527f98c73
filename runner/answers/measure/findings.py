"""The findings of an estimate, as plain values; ``rank/rehearsal.py`` finds them, the rest shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXACT = ("parameters", "gradients", "optimizer", "masters", "buffers")


@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind in one update. ``bytes``: of the whole tensors that are gathered, reduced or sent."""

    calls: int
    bytes: int


@dataclass(frozen=True)
class RankHolds:
    """The memory of one rank, in bytes, and its communication.

    ``masters``: fp32 copies of half-precision weights. ``activations``: the largest amount saved for the backward pass
    at any moment; ``most``: the peak of all memory in an update, when ``activations_then`` were saved. These and
    ``traffic`` are None if the model can't be traced without data; ``stops`` then says where.
    """

    rank: int
    parameters: int
    gradients: int
    optimizer: int
    masters: int
    buffers: int
    activations: int | None = None
    activations_then: int | None = None
    most: int | None = None
    traffic: Mapping[str, Traffic] | None = None
    stops: str = ""

    @property
    def exact(self) -> int:
        """The sum of the exact parts."""
        return sum(getattr(self, kind) for kind in EXACT)

    @property
    def total(self) -> int:
        """The most memory at any moment; for a model that cannot be traced, the sum of the exact parts."""
        return self.exact if self.most is None else self.most

    @property
    def sent(self) -> int | None:
        """Bytes of all collectives."""
        return None if self.traffic is None else sum(collective.bytes for collective in self.traffic.values())

    def parts(self) -> dict[str, int]:
        """The parts of ``total``, by kind, at the moment of the peak."""
        lasting = {kind: getattr(self, kind) for kind in ("parameters", "optimizer", "masters", "buffers")}
        if self.most is None:
            return {**lasting, "gradients": self.gradients}
        activations = self.activations_then or 0
        rest = max(0, self.most - sum(lasting.values()) - activations)
        gradients = min(self.gradients, rest)
        return {**lasting, "gradients": gradients, "activations": activations, "working": rest - gradients}


@dataclass(frozen=True)
class Estimate:
    """One configuration. ``label``: the keys that were swept; ``name``, ``color``: of its strategy.

    ``holds``: the ranks that hold the most and the least; empty if the configuration is refused, for ``reason``.
    """

    label: str
    name: str
    ranks: int = 0
    layout: str = ""
    samples: int = 0  # of a micro-batch
    holds: tuple[RankHolds, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def largest(self) -> RankHolds:
        """The rank that needs most memory."""
        return max(self.holds, key=lambda rank: (rank.most is not None, rank.total))

    def range(self, kind: str) -> tuple[int, int]:
        """The least and the most bytes of a kind that any rank holds."""
        sizes = [size for rank in self.holds if (size := getattr(rank, kind)) is not None]
        return min(sizes), max(sizes)


@dataclass(frozen=True)
class DeviceMemory:
    """The memory that each rank has, in bytes, and where that number is from."""

    memory: int
    source: str = field(default="--device-memory")
