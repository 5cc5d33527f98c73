"""The network between this machine's ranks (latency, start, bandwidths), from the seconds of all-reduces by payload."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from manyheads.runner.answers.scale.simulator.interval import median_error
from manyheads.runner.answers.scale.simulator.network import Link

PAYLOADS = tuple(2**power for power in (12, 16, 18, 20, 22, 24))  # bytes
BESIDE = "beside"  # the key of the slowdown in the ranks' results
LEAST = 1e-7  # seconds of a hop, and before the first one, at least
CLEAR = 0.3  # a bandwidth can be computed from an all-reduce if its bytes take at least this fraction of its time


@dataclass(frozen=True)
class Sums:
    """Measured all-reduces over ``ranks``. ``seconds``: by bytes; ``slowdown``: as in the simulator's assumptions.

    ``error``: the relative standard error of the seconds, as the rounds say: its root mean square over payloads.
    """

    ranks: int
    seconds: Mapping[int, float]
    slowdown: float
    error: float = 0.0

    @classmethod
    def of(cls, ranks: int, rounds: Mapping[str, Sequence[float]]) -> "Sums":
        """The medians over ``rounds``, which have the form in which the ranks wrote them."""
        sizes = {int(size): found for size, found in rounds.items() if size != BESIDE}
        squares = [median_error(found) ** 2 for found in sizes.values()]
        seconds = {size: median(found) for size, found in sizes.items()}
        return cls(ranks, seconds, median(rounds[BESIDE]), math.sqrt(fmean(squares)))


def link_of(few: Sums, many: Sums, *, cycle: float) -> Link:
    """The link between ranks, each of which counts as a machine. ``few``: of two ranks; ``many``: of the most ranks.

    ``cycle``: seconds between two checks for tensors that are ready. The simulator adds the mean wait, half of it, so
    it is subtracted here.
    """
    smallest = min(few.seconds)
    two, most = few.seconds[smallest], many.seconds[smallest]
    hops = 2 * (many.ranks - few.ranks)
    latency = max(LEAST, (most - two) / hops) if hops else two / 4
    latency = min(latency, two / 2 - LEAST)
    start = max(LEAST, two - 2 * latency - cycle / 2)
    rates: dict[int, float] = {}
    for size in few.seconds:
        found = [_rate(each, size) for each in (few, many) if size in each.seconds]
        if all(found):
            rates[size] = sum(found) / len(found)
    bandwidth = max(rates.values(), default=smallest / two)
    curve = tuple((float(size), rate / bandwidth) for size, rate in sorted(rates.items()))
    return Link(latency, bandwidth, start=start, curve=curve, achieved=1.0, algorithms=("ring",))


def _rate(sums: Sums, size: int) -> float:
    """Bytes per second of a ring all-reduce; 0 if the payload is too small to tell."""
    whole, empty = sums.seconds[size], min(sums.seconds.values())
    n = sums.ranks
    return 2 * (n - 1) / n * size / (whole - empty) if whole - empty > CLEAR * whole else 0.0
