"""A run's update as data, measured on one device with the micro-batches that a device has among others."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from manyheads.runner.answers.measure.limits import BATCH, LOADER, OPTIMIZER, PASSES, UPDATE, Seconds, variation
from manyheads.runner.answers.measure.subject import measure
from manyheads.runner.answers.scale.simulator.interval import median_error
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.answers.scale.targets import changed
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.declared import declared_class
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.json_types import ResultJson

FORWARD = 1 / 3  # its fraction of both passes: for each matrix product, the backward pass has two
GROUP = "parallel"
RANK = "manyheads.runner.answers.scale.rank.units"
UPDATES = "manyheads.runner.answers.scale.rank.updates"


class Updates(NamedTuple):
    """Measured updates. ``seconds``: per update, of the slowest rank; ``varied``: see ``limits.variation``.

    ``error``: the relative standard error of the seconds, as the rounds of their launch say.
    """

    seconds: float
    varied: float = 0.0
    error: float = 0.0

    @classmethod
    def of(cls, result: ResultJson) -> "Updates":
        """The updates that ranks measured."""
        rounds = result["floors"][UPDATE]
        seconds = Seconds.of(rounds)
        return cls(seconds.median, variation({UPDATE: seconds}), median_error(rounds))


@dataclass(frozen=True)
class MeasuredStep:
    """The measurement of an update on one device.

    ``step``: the update as data; ``updates``: its duration; ``folder``: of the measurement.
    """

    step: DeviceUpdate
    updates: Updates
    folder: Path


def measured_step(run: RunConfig, *, samples: int, threads: int | str = "auto", rank: str = RANK) -> MeasuredStep:
    """Measure an update on one device, with micro-batches of ``samples``. Raises ConfigurationError, RunFailed.

    ``rank``: the module that the rank runs.
    """
    alone = alone_run(run, samples=samples, threads=threads)
    folder, result = measure(alone, rank=rank)
    seconds = {name: median(rounds) for name, rounds in result["floors"].items()}
    return MeasuredStep(_step(alone, result, seconds), Updates.of(result), folder)


def wrapped_updates(
    run: RunConfig, *, samples: int, threads: int | str = "auto", rank: str = UPDATES
) -> Updates | None:
    """The same update with the run's own strategy on one rank: its wrapper takes time without any exchange.

    None if the strategy needs more ranks, or always has one process. ``rank``: the module that the rank runs.
    """
    if run.launcher.one_process or run.launcher.ranks != run.launcher.nproc_per_node:
        return None
    try:
        one = changed(
            run,
            "launcher.nproc_per_node=1",
            f"launcher.threads_per_rank={threads}",
            f"data.batch_size={samples * run.trainer.grad_accumulation}",
        )
    except ConfigurationError:
        return None
    return Updates.of(measure(one, rank=rank)[1])


def alone_run(run: RunConfig, *, samples: int, threads: int | str) -> RunConfig:
    """The run on one device, with micro-batches of ``samples``."""
    plain = next(name for name in options(GROUP) if declared_class(GROUP, read_option(GROUP, name)).is_baseline)
    return changed(
        run,
        f"{GROUP}={plain}",
        "launcher.nproc_per_node=auto",
        f"launcher.threads_per_rank={threads}",
        f"data.batch_size={samples * run.trainer.grad_accumulation}",
        chosen={GROUP},
    )


def _step(run: RunConfig, result: ResultJson, seconds: Mapping[str, float]) -> DeviceUpdate:
    micro_batches, processes, samples = run.trainer.grad_accumulation, run.data.num_workers, run.batch_per_rank
    passes, optimizer = seconds[PASSES], seconds[OPTIMIZER]
    return DeviceUpdate(
        units=tuple(Unit(*numbers) for numbers in result["units"]),
        forward=FORWARD * passes / micro_batches,
        backward=(1 - FORWARD) * passes / micro_batches,
        optimizer=optimizer,
        rest=max(0.0, seconds[BATCH] - passes - optimizer),
        micro_batches=micro_batches,
        samples=samples,
        loading=seconds[LOADER] * max(1, processes) / (samples * micro_batches),
        loaders=processes,
        cores=hardware.cpu_cores(),
    )


def between(small: MeasuredStep, large: MeasuredStep, samples: float, *, factor: float) -> DeviceUpdate:
    """The step with another micro-batch size, interpolated linearly between two measured ones; times ``factor``."""
    low, high = small.step, large.step
    if low.samples == high.samples:
        return replace(high.scaled(factor), samples=samples)
    at = (samples - low.samples) / (high.samples - low.samples)

    def mixed(low: float, high: float) -> float:
        return low + at * (high - low)

    step = replace(
        high,
        samples=samples,
        forward=mixed(low.forward, high.forward),
        backward=mixed(low.backward, high.backward),
        optimizer=mixed(low.optimizer, high.optimizer),
        rest=mixed(low.rest, high.rest),
        units=tuple(
            replace(after, activations=mixed(before.activations, after.activations))
            for before, after in zip(low.units, high.units, strict=True)
        ),
    )
    return step.scaled(factor)
