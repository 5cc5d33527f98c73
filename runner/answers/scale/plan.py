"""Predicts a run for each number of devices, from measurements on one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from manyheads.runner.answers.scale.answer import Help, OtherStrategy, Scaled
from manyheads.runner.answers.scale.measured_step import MeasuredStep, between
from manyheads.runner.answers.scale.recorded import Checkpoints
from manyheads.runner.answers.scale.simulator.network import Cluster
from manyheads.runner.answers.scale.simulator.predict import (
    Exchanged,
    Measured,
    PredictedUpdate,
    fitted,
    predict,
    replayed,
)
from manyheads.runner.answers.scale.simulator.replay import Assumptions
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate
from manyheads.runner.answers.scale.targets import Target
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import declared
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.parallel_option import ParallelOption

MILLION, HOUR = 1_000_000, 3600
GROUP = "parallel"
TWICE = 2.0  # the factor by which each part is improved, to find what would help most


@dataclass(frozen=True)
class Plan:
    """The inputs of predictions.

    ``available``: bytes of a device's memory. ``small``, ``large``: the steps with the smallest and the largest
    micro-batches of all targets. ``memory``: bytes that each target needs. ``measured``: what predictions start from.
    ``checkpoints``: those that the run wrote; None if it is not known.
    """

    run: RunConfig
    targets: list[Target]
    cluster: Cluster
    available: float
    small: MeasuredStep
    large: MeasuredStep
    memory: list[int | None]
    price: float | None
    measured: Measured
    assumptions: Assumptions = field(default_factory=Assumptions)
    checkpoints: Checkpoints | None = None

    def step(self, fitted: DeviceUpdate, devices: int) -> DeviceUpdate:
        """The step of a device among this many. ``fitted``: the step of the measured device."""
        samples = next(target.samples for target in self.targets if target.devices == devices)
        return between(self.small, self.large, samples, factor=fitted.forward / self.measured.step.forward)

    def predicted(self, option: ParallelOption, devices: Sequence[int]) -> list[PredictedUpdate]:
        """The predictions with a strategy. Raises ConfigurationError if it cannot be predicted."""
        return predict(
            self.measured,
            _exchanged(option),
            self.cluster,
            devices=devices,
            target=self.step,
            assumptions=self.assumptions,
        )

    def rows(self) -> list[Scaled]:
        """The predictions of the run, for each target."""
        predictions = self.predicted(self.run.parallel, [target.devices for target in self.targets])
        return [self._row(*row) for row in zip(self.targets, predictions, self.memory, strict=True)]

    def _row(self, target: Target, update: PredictedUpdate, memory: int | None) -> Scaled:
        checkpoint = self._checkpoint(target)
        hours = update.devices * MILLION / target.batch * (update.seconds + (checkpoint or 0.0)) / HOUR
        return Scaled(
            devices=update.devices,
            seconds=update.seconds,
            low=update.low,
            high=update.high,
            samples_per_second=target.batch / update.seconds,
            efficiency=self._efficiency(target, update.seconds),
            batch=target.batch,
            parts=update.parts,
            limit=max(vars(update.parts), key=lambda name: getattr(update.parts, name)),
            help=self._help(target),
            checkpoint=checkpoint,
            device_hours=hours,
            cost=None if self.price is None else hours * self.price,
            memory=memory,
            fits=None if memory is None else memory <= self.available,
        )

    def _checkpoint(self, target: Target) -> float | None:
        """Seconds of checkpoints per update; None if the run recorded none."""
        if self.checkpoints is None:
            return None
        return self.checkpoints.per_update(
            devices=target.devices, per_machine=self.cluster.per_machine, batch=target.batch
        )

    def _efficiency(self, target: Target, seconds: float) -> float:
        """Samples per second and device, relative to the measured device."""
        measured = self.large.step.samples * self.large.step.micro_batches / self.large.updates.seconds
        return target.batch / seconds / target.devices / measured

    def _help(self, target: Target) -> Help:
        """Which would help most if it were twice as good: network, loader, spread of ranks, or computing."""
        exchanges, plain = _exchanged(self.run.parallel)(target.devices), self.assumptions
        step = self.step(self._fitted(), target.devices)
        faster = self.cluster.adjusted(rate=TWICE, latency=1 / TWICE)
        spread = replace(plain, spread=plain.spread / TWICE)
        halves = step.scaled(1 / TWICE)
        now = replayed(step, exchanges, self.cluster, plain).seconds
        seconds = {
            "a network twice as fast, also within machines": replayed(step, exchanges, faster, plain).seconds,
            "loading twice as fast": replayed(
                replace(step, loading=step.loading / TWICE), exchanges, self.cluster, plain
            ).seconds,
            "ranks that differ half as much": replayed(step, exchanges, self.cluster, spread).seconds,
            "computing twice as fast": replayed(halves, exchanges, self.cluster, plain).seconds,
        }
        best = min(seconds, key=lambda name: seconds[name])
        return Help(best, now / seconds[best])

    def _fitted(self, measured: Measured | None = None) -> DeviceUpdate:
        return fitted(measured or self.measured, _exchanged(self.run.parallel), self.cluster, self.assumptions)

    def others(self) -> tuple[list[OtherStrategy], dict[str, str]]:
        """The other strategies with their default settings, and why some of them cannot be predicted, by name."""
        lines, unpredicted = [], {}
        for name in options(GROUP):
            if name != self.run.parallel.name:
                try:
                    lines.append(self._other(declared(GROUP, read_option(GROUP, name))))
                except ConfigurationError as error:
                    unpredicted[name] = str(error)
        return lines, unpredicted

    def _other(self, option: ParallelOption) -> OtherStrategy:
        """The efficiency of a strategy with the same batch and micro-batch sizes; the micro-batches' number follows."""
        fitted_step, efficiencies = self._fitted(Measured(1, self.large.updates.seconds, self.large.step)), []
        for target in self.targets:
            exchanges = _exchanged(option)(target.devices)
            count = target.batch // (exchanges.layout.data_size * target.samples)
            step = replace(self.step(fitted_step, target.devices), micro_batches=max(1, count))
            parts = replayed(step, exchanges, self.cluster, self.assumptions)
            efficiencies.append(self._efficiency(target, parts.seconds))
        return OtherStrategy(option.name, option.color, [target.devices for target in self.targets], efficiencies)


def _exchanged(option: ParallelOption) -> Exchanged:
    """A function of the number of devices that returns what the strategy exchanges; one device exchanges nothing."""
    return lambda devices: Exchanges() if devices == 1 else option.exchanges(devices=devices)
