"""How long a collective takes: links with a latency and a bandwidth, and the algorithms of collectives over them."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

GIGA = 1e9
MICRO = 1e-6


@dataclass(frozen=True)
class Link:
    """What one device, or one machine with all of its adapters, sends by.

    ``latency``: seconds of a hop, the library's work included; ``start``: seconds before a collective's first hop;
    ``bandwidth``: bytes per second in one direction, of a data sheet; ``achieved``: the fraction of it that
    collectives of large payloads reach; ``curve``: instead of that, the fraction by payload in bytes, ascending;
    ``algorithms``: of all-reduce, of which the fastest is chosen.
    """

    latency: float
    bandwidth: float
    achieved: float = 0.85
    start: float = 20 * MICRO
    curve: tuple[tuple[float, float], ...] = ()
    algorithms: tuple[str, ...] = ("ring", "tree")

    def rate(self, payload: float) -> float:
        """Bytes per second at which a collective of ``payload`` bytes is sent."""
        return self.bandwidth * (_interpolated(self.curve, payload) if self.curve else self.achieved)

    def adjusted(self, rate: float, latency: float = 1.0) -> "Link":
        """The link with its bandwidth and its latencies times these factors."""
        return replace(
            self, bandwidth=self.bandwidth * rate, latency=self.latency * latency, start=self.start * latency
        )


def _interpolated(curve: tuple[tuple[float, float], ...], payload: float) -> float:
    """The value at a payload, linear in its logarithm between two points, constant outside of them."""
    at = bisect_right(curve, payload, key=lambda point: point[0])
    if at in (0, len(curve)):
        return curve[max(0, at - 1)][1]
    (low, before), (high, after) = curve[at - 1], curve[at]
    return before + (after - before) * math.log(payload / low) / math.log(high / low)


@dataclass(frozen=True)
class Group:
    """Ranks that take part in one collective: ``size`` of them, ``stride`` apart in the numbering of all."""

    size: int
    stride: int = 1


@dataclass(frozen=True)
class Cluster:
    """Equal machines. ``inside``: between the devices of one of them; ``between``: between machines."""

    per_machine: int
    inside: Link
    between: Link

    def adjusted(self, *, rate: float, latency: float) -> "Cluster":
        """The cluster with all bandwidths and latencies times these factors."""
        return replace(self, inside=self.inside.adjusted(rate, latency), between=self.between.adjusted(rate, latency))

    def spread(self, group: Group, *, devices: int) -> tuple[int, int, float]:
        """Ranks of the group in one machine, machines that it spans, and groups that share a machine's network."""
        present = min(self.per_machine, devices)
        within = max(1, min(group.size, present // group.stride))
        machines = math.ceil(group.size / within)
        return within, machines, (present / within if machines > 1 else 1.0)

    def seconds(self, kind: str, payload: float, group: Group, *, devices: int) -> float:
        """The time of a collective. ``kind``: a key of COLLECTIVES; ``payload``: bytes of the whole tensor."""
        if group.size == 1 or payload <= 0:
            return 0.0
        within, machines, sharing = self.spread(group, devices=devices)
        path = Path(within, machines, self.inside, self.between.adjusted(1 / sharing), payload)
        return COLLECTIVES[kind](path)


@dataclass(frozen=True)
class Path:
    """What one collective goes over. ``within``: its ranks in a machine; ``payload``: bytes of the whole tensor."""

    within: int
    machines: int
    inside: Link
    between: Link
    payload: float

    @property
    def ranks(self) -> int:
        return self.within * self.machines

    @property
    def slowest(self) -> Link:
        """The link that every byte has to pass."""
        if self.machines == 1:
            return self.inside
        if self.within == 1:
            return self.between
        return min(self.inside, self.between, key=lambda link: link.rate(self.payload))

    @property
    def start(self) -> float:
        return (self.inside if self.machines == 1 else self.between).start

    def round(self) -> float:
        """Seconds for a byte to pass all ranks of a ring once."""
        between = self.machines - 1 if self.within > 1 else self.machines
        hops = self.ranks - 1
        between = min(hops, between) if self.machines > 1 else 0
        return (hops - between) * self.inside.latency + between * self.between.latency


def _ring(path: Path) -> float:
    """Reduce-scatter, then all-gather, each once around."""
    n = path.ranks
    return path.start + 2 * path.round() + 2 * (n - 1) / n * path.payload / path.slowest.rate(path.payload)


def _tree(path: Path) -> float:
    """Up and down two complementary trees of machines, each of which carries half; a chain inside a machine."""
    hops = 2 * (path.within - 1) * path.inside.latency
    if path.machines > 1:
        hops += 2 * math.ceil(math.log2(path.machines)) * TREE_HOP * path.between.latency
    return path.start + hops + 2 * path.payload / (TREE_RATE * path.slowest.rate(path.payload))


def _hierarchical(path: Path) -> float:
    """Reduce-scatter in each machine, all-reduce between machines, all-gather in each machine."""
    inside = replace(path, machines=1)
    between = replace(path, within=1)
    ends = 2 * _half(inside) if path.within > 1 else 0.0
    return ends + (_ring(between) if path.machines > 1 else 0.0)


TREE_RATE = 0.9  # of a ring's bandwidth. Source: NCCL, src/graph/tuning.cc
TREE_HOP = 2.0  # a chunk is received, reduced and sent on before the next hop: hops of a tree are as many slower
ALGORITHMS: Mapping[str, Callable[[Path], float]] = {"ring": _ring, "tree": _tree, "hierarchical": _hierarchical}


def _all_reduce(path: Path) -> float:
    link = path.inside if path.machines == 1 else path.between
    return min(ALGORITHMS[name](path) for name in link.algorithms)


def _half(path: Path) -> float:
    """All-gather or reduce-scatter: once around a ring."""
    n = path.ranks
    return path.start + path.round() + (n - 1) / n * path.payload / path.slowest.rate(path.payload)


def _broadcast(path: Path) -> float:
    return path.start + path.round() + path.payload / path.slowest.rate(path.payload)


def _send(path: Path) -> float:
    """From one rank to its neighbour in the group."""
    link = path.between if path.machines > 1 and path.within == 1 else path.inside
    return link.start + link.latency + path.payload / link.rate(path.payload)


COLLECTIVES: Mapping[str, Callable[[Path], float]] = {
    "all-reduce": _all_reduce,
    "all-gather": _half,
    "reduce-scatter": _half,
    "broadcast": _broadcast,
    "send": _send,
}
