"""The interval of a predicted time: what may be off, as relative standard deviations, and how they are combined.

A measured time may be off by what its rounds say, and by how launches of the same run differ.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, median, stdev

from manyheads.runner.parallel.exchanges import Exchanges

COVERED = 0.8  # fraction of measured times that should be within their intervals
TAIL = (1 - COVERED) / 2
PER_DOUBLING = 0.012  # unmodelled effects, for each doubling of the devices
# The model's own error, by what a strategy exchanges. Fitted to development data: tests/answers/scale/fitted.py.
DATA_PARALLEL, SHARDED, PIPELINE = "data parallel", "sharded", "pipeline"
MODEL = {DATA_PARALLEL: 0.12, SHARDED: 0.12, PIPELINE: 0.18}
MEDIAN = math.sqrt(math.pi / 2)  # how much larger a median's standard error is than a mean's, for normal errors
# Of an update's time from one launch of the same run to another.
ON_CPUS = 0.057  # 14 pairs of launches of two ranks: "two" and "measured" in tests/answers/scale/here.json
ON_GPUS = 0.009  # 5 launches each on 1 to 32 V100, ResNet-50: DLPerf (docs/scale-method.md)
ASSUMED = 4  # the assumption counts as much as this many pairs of measured launches

Range = tuple[float, float]  # the lower and the upper end


def median_error(rounds: Sequence[float]) -> float:
    """The relative standard error of the median of the rounds; 0 for a single one."""
    return MEDIAN * stdev(rounds) / math.sqrt(len(rounds)) / median(rounds) if len(rounds) > 1 else 0.0


def between_launches(*pairs: tuple[float, float], on_gpus: bool = False) -> float:
    """The relative standard deviation from launch to launch. ``pairs``: seconds of the same run in two launches each.

    Without any pair, what is assumed.
    """
    assumed = ON_GPUS if on_gpus else ON_CPUS
    squares = [math.log(second / first) ** 2 / 2 for first, second in pairs]
    return math.sqrt((ASSUMED * assumed**2 + sum(squares)) / (ASSUMED + len(squares)))


def kind_of(exchanges: Exchanges) -> str:
    """The kind of a strategy, a key of MODEL."""
    layout = exchanges.layout
    if layout.pipeline > 1:
        return PIPELINE
    is_sharded = layout.shard > 1 or layout.tensor > 1 or exchanges.shards_optimizer
    return SHARDED if is_sharded else DATA_PARALLEL


def model_error(exchanges: Exchanges, *, devices: int, measured_on: int) -> float:
    """The relative standard deviation of what the model does not know; 0 for the measured number of devices."""
    if devices == measured_on:
        return 0.0
    return math.hypot(MODEL[kind_of(exchanges)], PER_DOUBLING * math.log2(devices / measured_on))


def middle(values: Sequence[float]) -> Range:
    """The range of the middle COVERED of the values."""
    ordered = sorted(values)
    return ordered[int(TAIL * len(ordered))], ordered[math.ceil((1 - TAIL) * len(ordered)) - 1]


def widened(best: float, replays: Range, *errors: float) -> Range:
    """The interval around ``best``: that of the replays, and independent relative errors with normal logarithms."""
    deviation = math.hypot(*errors) * NormalDist().inv_cdf(1 - TAIL)
    below, above = (max(0.0, math.log(ratio)) for ratio in (best / replays[0], replays[1] / best))
    return best * math.exp(-math.hypot(below, deviation)), best * math.exp(math.hypot(above, deviation))
