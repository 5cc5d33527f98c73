"""Replays one update on many devices: computing in order, concurrent exchanges, the slowest rank, the loader."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from manyheads.runner.answers.scale.simulator.network import Cluster, Group
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.answers.scale.simulator.timeline import COMPUTE, NETWORK, Timeline
from manyheads.runner.parallel.exchanges import Exchanges


@dataclass(frozen=True)
class Assumptions:
    """What is assumed for all runs, unless it is measured. docs/scale-method.md has the reasons.

    ``spread``: how much longer than the fastest rank the mean one takes, as a fraction of its passes. ``slowdown``:
    seconds that computing loses for each second of a concurrent exchange. ``rate``, ``latency``: factors for all links.
    """

    spread: float = 0.018
    slowdown: float = 0.1
    rate: float = 1.0
    latency: float = 1.0


@dataclass(frozen=True)
class Parts:
    """The seconds of an update, by what the rank is doing."""

    computing: float
    optimizer: float
    exchange: float
    stragglers: float
    data: float
    idle: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of the update: the sum of its parts."""
        return self.computing + self.optimizer + self.exchange + self.stragglers + self.data + self.idle


class Arrival(NamedTuple):
    """Gradients that become ready at a constant rate from ``start`` to ``end``, and their bytes."""

    start: float
    end: float
    bytes: float


class Replay:
    """The replay of an update on the devices of ``exchanges.layout`` in a cluster."""

    def __init__(self, step: DeviceUpdate, exchanges: Exchanges, cluster: Cluster, assumptions: Assumptions):
        self.step, self.exchanges, self.assumptions = step, exchanges, assumptions
        self.cluster = cluster.adjusted(rate=assumptions.rate, latency=assumptions.latency)
        layout = exchanges.layout
        self.devices = layout.ranks
        self.tensor = Group(layout.tensor, 1)
        self.shard = Group(layout.shard, layout.tensor)
        self.replicate = Group(layout.replicate, layout.tensor * layout.shard)
        self.stage = Group(layout.pipeline, layout.tensor * layout.shard * layout.replicate)
        self.timeline = Timeline()
        self._seconds: dict[tuple[str, float, Group], float] = {}

    def seconds(self, kind: str, payload: float, group: Group) -> float:
        """The seconds of one collective; cached, because most of an update are equal."""
        asked = kind, payload, group
        if asked not in self._seconds:
            self._seconds[asked] = self.cluster.seconds(kind, payload, group, devices=self.devices)
        return self._seconds[asked]

    # -- computing, and the exchanges that it waits for ----------------------------------------------

    def passes(self, units: tuple[Unit, ...]) -> None:
        """Replay the forward and backward passes of all micro-batches on a device with these units."""
        for number in range(self.step.micro_batches):
            self._copy()
            self._forward(units)
            arrivals = [*self._backward(units)]
            if number == self.step.micro_batches - 1 and self.exchanges.period == 1:
                self.reduce(arrivals)

    def _copy(self) -> None:
        if self.exchanges.copies:
            ready = self.timeline.free(COMPUTE)
            self._wait(self._exchange("broadcast", self.step.bytes, self.replicate, ready=ready))

    def _forward(self, units: tuple[Unit, ...]) -> None:
        for unit in self._gathered(units, is_needed=self.exchanges.gathers > 0):
            self._compute(unit, self.step.forward)
            self._sum_activations(unit)

    def _backward(self, units: tuple[Unit, ...]) -> Iterator[Arrival]:
        """Yields each unit's gradients, which are then reduced over the replicas."""
        for unit in self._gathered(units[::-1], is_needed=self.exchanges.gathers > 1):
            start = self.timeline.free(COMPUTE)
            end = self._compute(unit, self.step.backward)
            self._sum_activations(unit)
            size = unit.bytes / self.exchanges.layout.tensor * self.exchanges.gradient_scale
            if self.shard.size > 1:
                self._exchange("reduce-scatter", size, self.shard, ready=end)
            yield Arrival(start, end, size / self.shard.size)

    def _compute(self, unit: Unit, seconds: float) -> float:
        return self.timeline.run(COMPUTE, "passes", seconds * unit.share / self.exchanges.layout.tensor)

    def _gathered(self, units: tuple[Unit, ...], *, is_needed: bool) -> Iterator[Unit]:
        """Yields each unit once its weights are gathered; the next one's are gathered while it is computed."""
        scale = self.exchanges.weight_scale / self.exchanges.layout.tensor if is_needed else 0.0
        complete = 0.0
        for unit, after in zip((None, *units), (*units, None), strict=True):
            self._wait(complete)
            if after is not None:
                now = self.timeline.free(COMPUTE)
                complete = self._exchange("all-gather", after.bytes * scale, self.shard, ready=now)
            if unit is not None:
                yield unit

    def _sum_activations(self, unit: Unit) -> None:
        for _ in range(self.exchanges.activation_sums // 2):
            ready = self.timeline.free(COMPUTE)
            self._wait(self._exchange("all-reduce", unit.activations, self.tensor, ready=ready))

    def _exchange(self, kind: str, payload: float, group: Group, *, ready: float = 0.0) -> float:
        """Add a collective that can begin at ``ready``; return the time at which it is complete."""
        seconds = self.seconds(kind, payload, group)
        return self.timeline.run(NETWORK, kind, seconds, ready=ready) if seconds else ready

    def _wait(self, until: float) -> None:
        self.timeline.run(COMPUTE, "waiting", 0.0, ready=until)

    # -- gradients -----------------------------------------------------------------------------------

    def reduce(self, arrivals: list[Arrival]) -> None:
        """Reduce gradients over the replicas, in buckets."""
        for ready, size in self._buckets(arrivals):
            self._exchange("all-reduce", size, self.replicate, ready=ready)

    def _buckets(self, arrivals: list[Arrival]) -> Iterator[tuple[float, float]]:
        """The time at which each bucket is ready, and its bytes."""
        limit = self.exchanges.bucket_bytes * self.exchanges.gradient_scale
        end = arrivals[-1].end if arrivals else 0.0
        filled = 0.0
        for start, stop, size in arrivals:
            done = 0.0
            while filled + size - done >= limit:
                done += limit - filled
                yield self._checked(start + (stop - start) * done / size, end), limit
                filled = 0.0
            filled += size - done
        if filled > 0:
            yield self._checked(end, end), filled

    def _checked(self, ready: float, end: float) -> float:
        if not self.exchanges.overlaps:
            return end
        return ready + self.exchanges.cycle / 2  # the mean wait for the next check

    # -- the end of an update ------------------------------------------------------------------------

    def conclude(self) -> Parts:
        """Replay the optimizer's step, after all exchanges, and return the parts of the update."""
        layout, spans = self.exchanges.layout, self.timeline
        beside = self.assumptions.slowdown * spans.overlap()
        passes = spans.busy(COMPUTE, what="passes") + beside
        exchanged = max(spans.free(COMPUTE) + beside, spans.free(NETWORK))
        replicas = layout.replicate if self.exchanges.shards_optimizer else 1
        optimizer = self.step.optimizer / (layout.tensor * layout.shard * layout.pipeline * replicas) + self.step.rest
        waited = exchanged - passes + self._after_step()
        slowest = passes * self.assumptions.spread * (harmonic(self.devices) - 1) / self.exchanges.period
        worked = passes + waited + optimizer + slowest
        return Parts(passes, optimizer, waited, slowest, self._missing_data(worked))

    def _after_step(self) -> float:
        shard = self.step.bytes / (self.exchanges.layout.tensor * self.exchanges.layout.pipeline)
        if self.exchanges.shards_optimizer:
            return self.seconds("all-gather", shard, self.replicate)
        if self.exchanges.period > 1:
            return self.seconds("all-reduce", shard, self.replicate) / self.exchanges.period
        return 0.0

    def _missing_data(self, worked: float) -> float:
        """The seconds that an update waits for its batch."""
        ranks = 1 if self.exchanges.copies else min(self.devices, self.cluster.per_machine)
        devices = self.devices if self.exchanges.copies else 1
        loading = self.step.waiting_for_data(ranks_per_machine=ranks, ranks_share=devices)
        return loading if self.step.loaders == 0 else max(0.0, loading - worked)


def harmonic(n: int) -> float:
    """1 + 1/2 + ... + 1/n: the mean of the largest of n independent, exponentially distributed times with mean 1."""
    return sum(1 / k for k in range(1, n + 1))
