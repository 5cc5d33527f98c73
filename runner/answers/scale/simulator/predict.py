"""Predicts the time of an update on other numbers of devices, with an interval."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from manyheads.runner.answers.scale.simulator.interval import Range, middle, model_error, widened
from manyheads.runner.answers.scale.simulator.network import Cluster
from manyheads.runner.answers.scale.simulator.pipeline import pipelined
from manyheads.runner.answers.scale.simulator.replay import Assumptions, Parts, Replay
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate
from manyheads.runner.parallel.exchanges import Exchanges

DRAWS = 60  # random variations of the assumptions, for an interval
CLOSE_ENOUGH = 1e-4  # relative difference allowed between the measured time and the replayed one
# How far the assumptions may be off, as the standard deviation of their logarithms.
UNCERTAIN = {"spread": 0.7, "slowdown": 0.7, "rate": 0.25, "latency": 0.4}

Exchanged = Callable[[int], Exchanges]  # returns what a strategy exchanges on a number of devices


@dataclass(frozen=True)
class Measured:
    """The measured seconds of an update on a number of devices. ``step``: the update of one of them.

    Relative standard deviations: ``error``, of the measured seconds in their launch; ``launches``, from one launch of
    the same run to another; ``network``, of measured bandwidths and latencies, beyond those of UNCERTAIN.
    """

    devices: int
    seconds: float
    step: DeviceUpdate
    error: float = 0.0
    launches: float = 0.0
    network: float = 0.0


@dataclass(frozen=True)
class PredictedUpdate:
    """The predicted update on ``devices``. ``low``, ``high``: the interval of its seconds; ``parts``: its parts.

    ``replays``: the part of the interval that follows from the assumptions alone.
    """

    devices: int
    seconds: float
    low: float
    high: float
    parts: Parts
    replays: Range


def replayed(step: DeviceUpdate, exchanges: Exchanges, cluster: Cluster, assumptions: Assumptions) -> Parts:
    """The parts of an update on the devices of ``exchanges.layout``."""
    replay = Replay(step, exchanges, cluster, assumptions)
    if exchanges.layout.pipeline > 1:
        return pipelined(replay)
    replay.passes(step.units)
    return replay.conclude()


def fitted(measured: Measured, exchanged: Exchanged, cluster: Cluster, assumptions: Assumptions) -> DeviceUpdate:
    """The measured step, scaled such that replaying it takes as long as was measured.

    The measured time includes what the devices exchanged, so their computing took less.
    """
    exchanges, factor = exchanged(measured.devices), 1.0
    for _ in range(50):
        replay = replayed(measured.step.scaled(factor), exchanges, cluster, assumptions)
        waits = replay.data > 0 and measured.step.loaders > 0  # loading hides how long the computing takes
        if abs(replay.seconds - measured.seconds) <= CLOSE_ENOUGH * measured.seconds or waits:
            break
        scaling = (replay.computing + replay.optimizer + replay.stragglers + replay.idle) / factor  # grow with it
        factor = max(factor / 2, factor + (measured.seconds - replay.seconds) / scaling)
    return measured.step.scaled(factor)


def predict(
    measured: Measured,
    exchanged: Exchanged,
    cluster: Cluster,
    *,
    devices: Sequence[int],
    target: Callable[[DeviceUpdate, int], DeviceUpdate] = lambda step, _: step,
    assumptions: Assumptions | None = None,
) -> list[PredictedUpdate]:
    """Predict the time of an update for each number of devices.

    ``target``: returns the step of a device among this many, from the fitted step, if their batches differ.
    """
    usual = assumptions or Assumptions()
    numbers = random.Random(0)  # the same interval each time
    draws = [_drawn(usual, numbers, measured.network) for _ in range(DRAWS)]
    steps = [fitted(measured, exchanged, cluster, draw) for draw in (usual, *draws)]
    predictions = []
    for count in devices:
        best, *times = (
            replayed(target(step, count), exchanged(count), cluster, draw)
            for step, draw in zip(steps, (usual, *draws), strict=True)
        )
        replays = middle([replay.seconds for replay in times])
        model = model_error(exchanged(count), devices=count, measured_on=measured.devices)
        # Both launches vary: the measured one, and the one that is predicted.
        low, high = widened(best.seconds, replays, model, measured.error, measured.launches, measured.launches)
        predictions.append(PredictedUpdate(count, best.seconds, low, high, best, replays))
    return predictions


def _drawn(usual: Assumptions, numbers: random.Random, network: float) -> Assumptions:
    factors = {}
    for name, sigma in UNCERTAIN.items():
        deviation = math.hypot(sigma, network) if name in ("rate", "latency") else sigma
        factors[name] = math.exp(numbers.gauss(0, deviation))
    return replace(usual, **{name: getattr(usual, name) * factor for name, factor in factors.items()})
