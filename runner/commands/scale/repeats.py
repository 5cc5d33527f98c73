"""How far a measured time may be off: by what its rounds say, and by how launches of the same run differ."""

import math
from collections.abc import Sequence
from statistics import median, stdev

MEDIAN = math.sqrt(math.pi / 2)  # how much larger a median's standard error is than a mean's, for normal errors
# Relative standard deviation of an update's time from one launch of the same run to another.
ON_CPUS = 0.057  # 14 pairs of launches of two ranks: "two" and "measured" in tests/commands/scale/here.json
ON_GPUS = 0.009  # 5 launches each on 1 to 32 V100, ResNet-50: DLPerf (docs/scale.md)
ASSUMED = 4  # the assumption counts as much as this many pairs of measured launches


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
