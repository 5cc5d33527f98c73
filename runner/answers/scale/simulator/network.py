"""The time of a collective: links with latency and bandwidth, and the algorithms of collectives over them."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

MICRO = 1e-6


@dataclass(frozen=True)
class Link:
    """The connection of one device, or of one machine with all of its adapters.

    ``latency``: seconds of a hop, including the library's work. ``start``: seconds before a collective's first hop.
    ``bandwidth``: bytes per second in one direction, from a data sheet. ``achieved``: the fraction of it that
    collectives of large payloads reach. ``curve``: in its place, pairs of payload in bytes and fraction, ascending.
    ``algorithms``: of all-reduce; the fastest is chosen.
    """

    latency: float
    bandwidth: float
    achieved: float = 0.85
    start: float = 20 * MICRO
    curve: tuple[tuple[float, float], ...] = ()
    algorithms: tuple[str, ...] = ("ring", "tree")

    def rate(self, payload: float) -> float:
        """Bytes per second that a collective of ``payload`` bytes reaches."""
        return self.bandwidth * (_interpolated(self.curve, payload) if self.curve else self.achieved)

    def adjusted(self, rate: float, latency: float = 1.0) -> "Link":
        """The link with its bandwidth multiplied by ``rate``, and latency and start by ``latency``."""
        return replace(
            self, bandwidth=self.bandwidth * rate, latency=self.latency * latency, start=self.start * latency
        )


def _interpolated(curve: tuple[tuple[float, float], ...], payload: float) -> float:
    """The value at a payload: linear in its logarithm between points, constant beyond the first and the last."""
    at = bisect_right(curve, payload, key=lambda point: point[0])
    if at in (0, len(curve)):
        return curve[max(0, at - 1)][1]
    (low, before), (high, after) = curve[at - 1], curve[at]
    return before + (after - before) * math.log(payload / low) / math.log(high / low)


@dataclass(frozen=True)
class Group:
    """The ranks of one collective: ``size`` of them, whose numbers are ``stride`` apart."""

    size: int
    stride: int = 1


@dataclass(frozen=True)
class Cluster:
    """Equal machines with ``per_machine`` devices, their links ``inside`` a machine and ``between`` machines."""

    per_machine: int
    inside: Link
    between: Link

    def adjusted(self, *, rate: float, latency: float) -> "Cluster":
        """The cluster with all bandwidths multiplied by ``rate``, and all latencies by ``latency``."""
        return replace(self, inside=self.inside.adjusted(rate, latency), between=self.between.adjusted(rate, latency))

    def spread(self, group: Group, *, devices: int) -> tuple[int, int, float]:
        """The group's ranks per machine, the machines that it spans, and the groups that share a machine's network."""
        present = min(self.per_machine, devices)
        within = max(1, min(group.size, present // group.stride))
        machines = math.ceil(group.size / within)
        return within, machines, (present / within if machines > 1 else 1.0)

    def seconds(self, kind: str, payload: float, group: Group, *, devices: int) -> float:
        """The seconds of a collective. ``kind``: a key of COLLECTIVES; ``payload``: bytes of the complete tensor.

        ``devices``: in the cluster.
        """
        if group.size == 1 or payload <= 0:
            return 0.0
        within, machines, sharing = self.spread(group, devices=devices)
        return COLLECTIVES[kind](Path(within, machines, self.inside, self.between.adjusted(1 / sharing), payload))


@dataclass(frozen=True)
class Path:
    """The links of one collective. ``within``: its ranks in a machine; ``payload``: bytes of the complete tensor."""

    within: int
    machines: int
    inside: Link
    between: Link
    payload: float

    @property
    def ranks(self) -> int:
        """All ranks of the collective."""
        return self.within * self.machines

    @property
    def slowest(self) -> Link:
        """The slower of the links that every byte has to pass."""
        if self.machines == 1:
            return self.inside
        if self.within == 1:
            return self.between
        return min(self.inside, self.between, key=lambda link: link.rate(self.payload))

    @property
    def start(self) -> float:
        """Seconds before the first hop."""
        return (self.inside if self.machines == 1 else self.between).start

    def round(self) -> float:
        """The seconds that a byte takes once around a ring of all ranks."""
        hops = self.ranks - 1
        between = min(hops, self.machines - (self.within > 1)) if self.machines > 1 else 0
        return (hops - between) * self.inside.latency + between * self.between.latency


def _ring(path: Path) -> float:
    """All-reduce: a reduce-scatter, then an all-gather, each once around the ring."""
    n = path.ranks
    return path.start + 2 * path.round() + 2 * (n - 1) / n * path.payload / path.slowest.rate(path.payload)


def _tree(path: Path) -> float:
    """All-reduce up and down two complementary trees of machines, each for half of the data; chains within machines."""
    hops = 2 * (path.within - 1) * path.inside.latency
    if path.machines > 1:
        hops += 2 * math.ceil(math.log2(path.machines)) * TREE_HOP * path.between.latency
    return path.start + hops + 2 * path.payload / (TREE_RATE * path.slowest.rate(path.payload))


def _hierarchical(path: Path) -> float:
    """All-reduce as a reduce-scatter in each machine, an all-reduce between machines, an all-gather in each machine."""
    ends = 2 * _half(replace(path, machines=1)) if path.within > 1 else 0.0
    return ends + (_ring(replace(path, within=1)) if path.machines > 1 else 0.0)


TREE_RATE = 0.9  # fraction of a ring's bandwidth. Source: NCCL, src/graph/tuning.cc
TREE_HOP = 2.0  # how much longer a hop takes in a tree: a chunk is received, reduced and sent on before the next one
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
    """A message from one rank to its neighbour in the group."""
    link = path.between if path.machines > 1 and path.within == 1 else path.inside
    return link.start + link.latency + path.payload / link.rate(path.payload)


COLLECTIVES: Mapping[str, Callable[[Path], float]] = {
    "all-reduce": _all_reduce,
    "all-gather": _half,
    "reduce-scatter": _half,
    "broadcast": _broadcast,
    "send": _send,
}
