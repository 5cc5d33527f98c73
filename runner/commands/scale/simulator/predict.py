"""What an update would take on other numbers of devices, with an interval."""

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

DRAWS = 60  # of the assumptions, for an interval
COVERED = 0.8  # of an interval: what part of predictions are meant to be within theirs
CLOSE_ENOUGH = 1e-4  # relative difference between the measured time and the replayed one
# How far the assumptions may be off, as the standard deviation of their logarithms.
UNCERTAIN = {"spread": 0.7, "slowdown": 0.7, "rate": 0.25, "latency": 0.4}
PER_DOUBLING = 0.012  # relative standard deviation of what is not modelled, for each doubling of the devices

Exchanged = Callable[[int], Exchanges]  # of a strategy, by the number of devices


@dataclass(frozen=True)
class Measured:
    """A measured time of an update, and of how many devices."""

    devices: int
    seconds: float
    step: Step


@dataclass(frozen=True)
class Prediction:
    """An update on ``devices``. ``low``, ``high``: the seconds between which it is expected to be; ``parts``: of it."""

    devices: int
    seconds: float
    low: float
    high: float
    parts: Parts


def replayed(step: Step, exchanges: Exchanges, cluster: Cluster, assumptions: Assumptions) -> Parts:
    """What an update consists of on the devices of ``exchanges.layout``."""
    replay = Replay(step, exchanges, cluster, assumptions)
    if exchanges.layout.pipeline > 1:
        return pipelined(replay)
    replay.passes(step.units)
    return replay.conclude()


def fitted(measured: Measured, exchanged: Exchanged, cluster: Cluster, assumptions: Assumptions) -> Step:
    """The step, on a device as fast as the one with which the update took as long as measured.

    What the measured devices exchanged is part of their time, so their computing alone took less.
    """
    exchanges, factor = exchanged(measured.devices), 1.0
    for _ in range(50):
        found = replayed(measured.step.scaled(factor), exchanges, cluster, assumptions)
        waits = found.data > 0 and measured.step.loaders > 0  # so that its computing cannot be seen in its time
        if abs(found.seconds - measured.seconds) <= CLOSE_ENOUGH * measured.seconds or waits:
            break
        own = (found.computing + found.optimizer + found.stragglers + found.idle) / factor  # what grows with it
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

    ``target``: the step of each of so many devices, from the fitted one, where batches differ.
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
    """Where ``COVERED`` of the draws are, wider by what is not modelled; both are taken to be independent."""
    tail = (1 - COVERED) / 2
    ordered = sorted(draws)
    low, high = ordered[int(tail * len(ordered))], ordered[math.ceil((1 - tail) * len(ordered)) - 1]
    own = best * unknown * NormalDist().inv_cdf(1 - tail)
    below, above = math.hypot(max(0.0, best - low), own), math.hypot(max(0.0, high - best), own)
    return best - below, best + above
