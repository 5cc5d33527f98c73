"""Fits the model's own error, by which intervals are widened: ``python -m tests.answers.scale.fitted``.

To development data: the published series of that set, and the runs in here.json. For each kind of strategy, the error
is the smallest with which ``ceil(0.8 (n + 1))`` of n rows are within their intervals, in each of the two sets of data.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

from manyheads.runner.answers.scale.simulator.interval import (
    COVERED,
    DATA_PARALLEL,
    MEDIAN,
    MODEL,
    ON_CPUS,
    ON_GPUS,
    PER_DOUBLING,
    PIPELINE,
    SHARDED,
    TAIL,
    Range,
    kind_of,
    widened,
)
from tests.answers.scale.simulator.series import Series, all_series

KINDS = {"FSDP": SHARDED, "ZeRO-1": SHARDED, "pipeline": PIPELINE}  # of runs here, the others are data parallel
Z = NormalDist().inv_cdf(1 - TAIL)
ROUNDS, RANGE = 5, 2.326  # rounds of a launch; the mean range of as many normal values, in standard deviations
PUBLISHED, HERE = "published", "here"
Found = dict[str, dict[str, Any]]  # the content of here.json


class Row(NamedTuple):
    """A prediction and the truth. ``replays``: their interval; ``errors``: what else is known to vary."""

    source: str
    kind: str
    seconds: float
    truth: float
    replays: Range
    errors: tuple[float, ...]

    @property
    def needed(self) -> float:
        """The smallest error of the model with which the truth is within the interval."""
        low, high = widened(self.seconds, self.replays, *self.errors)
        deviation = math.log(self.truth / self.seconds)
        known = math.log(high / self.seconds) if deviation > 0 else math.log(self.seconds / low)
        return math.sqrt(max(0.0, deviation**2 - known**2)) / Z


def published(series: Iterable[Series]) -> Iterator[Row]:
    """The rows of published series."""
    for each in series:
        start = min(each.rows)
        for found in each.predictions:
            errors = _doublings(start, found.devices), ON_GPUS, ON_GPUS
            kind, truth = kind_of(each.exchanges(found.devices)), each.seconds(found.devices)
            yield Row(PUBLISHED, kind, found.seconds, truth, found.replays, errors)


def here(found: Found) -> Iterator[Row]:
    """The runs in here.json, whose intervals were those of the replays and of doublings."""
    for name, content in found.items():
        kind = KINDS.get(name.partition(",")[0], DATA_PARALLEL)
        error = MEDIAN * content["varied"] / RANGE / math.sqrt(ROUNDS)
        for each in content["predictions"]:
            doublings = _doublings(each["start"], each["devices"])
            own, best = Z * doublings * each["seconds"], each["seconds"]
            replays = tuple(
                best + math.copysign(math.sqrt(max(0.0, (each[end] - best) ** 2 - own**2)), each[end] - best)
                for end in ("low", "high")
            )
            truth = content["measured"][str(each["devices"])]
            yield Row(HERE, kind, best, truth, (replays[0], replays[1]), (doublings, error, ON_CPUS, ON_CPUS))


def _doublings(start: int, devices: int) -> float:
    return PER_DOUBLING * math.log2(devices / start)


def fitted(rows: Iterable[Row]) -> dict[str, float]:
    """The model's error by kind of strategy, rounded up to a hundredth."""
    needed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        needed[row.source, row.kind].append(row.needed)
    least: dict[str, float] = defaultdict(float)
    for (_, kind), found in needed.items():
        count = min(len(found), math.ceil(COVERED * (len(found) + 1)))
        least[kind] = max(least[kind], sorted(found)[count - 1])
    return {kind: math.ceil(100 * value) / 100 for kind, value in least.items()}


if __name__ == "__main__":
    from tests.answers.scale.here import DEVELOPMENT, read

    known = [each for each in all_series() if each.content["set"] == "development"]
    rows = [*published(known), *here(read(DEVELOPMENT))]
    for source in (PUBLISHED, HERE):
        for kind in MODEL:
            own = [row for row in rows if (row.source, row.kind) == (source, kind)]
            within = sum(row.needed <= MODEL[kind] for row in own)
            sys.stdout.write(f"{source}, {kind}: {within} of {len(own)} within; alone {fitted(own)}\n")
    sys.stdout.write(f"{fitted(rows)}\n")
