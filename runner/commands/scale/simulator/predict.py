"""Predicts the time of an update on other numbers of devices, with an interval."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from manyheads.runner.commands.scale.simulator.network import Cluster
from manyheads.runner.commands.scale.simulator.pipeline import pipelined
from manyheads.runner.commands.scale.simulator.replay import Assumptions, Parts, Replay
from manyheads.runner.commands.scale.simulator.step import Step
from manyheads.runner.parallel.exchanges import Exchanges

DRAWS = 60  # random variations of the assumptions, for an interval
COVERED = 0.8  # fraction of measured times that should be within their intervals
CLOSE_ENOUGH = 1e-4  # relative difference allowed between the measured time and the replayed one
# How far the assumptions may be off, as the standard deviation of their logarithms.
UNCERTAIN = {"spread": 0.7, "slowdown": 0.7, "rate": 0.25, "latency": 0.4}
PER_DOUBLING = 0.012  # relative standard deviation of unmodelled effects, for each doubling of the devices

Exchanged = Callable[[int], Exchanges]  # returns what a strategy exchanges on a number of devices


@dataclass(frozen=True)
class Measured:
    """The measured seconds of an update on a number of devices. ``step``: the update of one of them."""

    devices: int
    seconds: float
    step: Step


@dataclass(frozen=True)
class Prediction:
    """The predicted update on ``devices``. ``low``, ``high``: the interval of its seconds; ``parts``: its parts."""

    devices: int
    seconds: float
    low: float
    high: float
    parts: Parts


def replayed(step: Step, exchanges: Exchanges, cluster: Cluster, assumptions: Assumptions) -> Parts:
    """The parts of an update on the devices of ``exchanges.layout``."""
    replay = Replay(step, exchanges, cluster, assumptions)
    if exchanges.layout.pipeline > 1:
        return pipelined(replay)
    replay.passes(step.units)
    return replay.conclude()


def fitted(measured: Measured, exchanged: Exchanged, cluster: Cluster, assumptions: Assumptions) -> Step:
    """The measured step, scaled such that replaying it takes as long as was measured.

    The measured time includes what the devices exchanged, so their computing took less.
    """
    exchanges, factor = exchanged(measured.devices), 1.0
    for _ in range(50):
        found = replayed(measured.step.scaled(factor), exchanges, cluster, assumptions)
        waits = found.data > 0 and measured.step.loaders > 0  # loading hides how long the computing takes
        if abs(found.seconds - measured.seconds) <= CLOSE_ENOUGH * measured.seconds or waits:
            break
        own = (found.computing + found.optimizer + found.stragglers + found.idle) / factor  # grow with it
        factor = max(factor / 2, factor + (measured.seconds - found.seconds) / own)
    return measured.step.scaled(factor)


def predict(
    measured: Measured,
    exchanged: Exchanged,
    cluster: Cluster,
    *,
    devices: Sequence[int],
    target: Callable[[Step, int], Step] = lambda step, _: step,
    assumptions: Assumptions | None = None,
) -> list[Prediction]:
    """Predict the time of an update for each number of devices.

    ``target``: returns the step of one of so many devices, from the fitted step, if their batches differ.
    """
    middle = assumptions or Assumptions()
    numbers = random.Random(0)  # the same interval each time
    draws = [_drawn(middle, numbers) for _ in range(DRAWS)]
    steps = [fitted(measured, exchanged, cluster, each) for each in (middle, *draws)]
    found = []
    for count in devices:
        times = [
            replayed(target(step, count), exchanged(count), cluster, each)
            for step, each in zip(steps, (middle, *draws), strict=True)
        ]
        best = times[0]
        unknown = PER_DOUBLING * abs(math.log2(count / measured.devices))
        low, high = _interval(best.seconds, [each.seconds for each in times[1:]], unknown)
        found.append(Prediction(count, best.seconds, low, high, best))
    return found


def _drawn(middle: Assumptions, numbers: random.Random) -> Assumptions:
    factors = {name: math.exp(numbers.gauss(0, sigma)) for name, sigma in UNCERTAIN.items()}
    return replace(middle, **{name: getattr(middle, name) * factor for name, factor in factors.items()})


def _interval(best: float, draws: list[float], unknown: float) -> tuple[float, float]:
    """The interval of COVERED of the draws, widened by unmodelled effects, which are assumed to be independent."""
    tail = (1 - COVERED) / 2
    ordered = sorted(draws)
    low, high = ordered[int(tail * len(ordered))], ordered[math.ceil((1 - tail) * len(ordered)) - 1]
    own = best * unknown * NormalDist().inv_cdf(1 - tail)
    below, above = math.hypot(max(0.0, best - low), own), math.hypot(max(0.0, high - best), own)
    return best - below, best + above
