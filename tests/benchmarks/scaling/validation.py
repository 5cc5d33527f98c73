"""Predict a run on several ranks of this machine, as ``manyheads scale`` does, then measure it on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.answers.measure.subject import subject_of
from manyheads.runner.answers.scale.measured_step import MeasuredStep, Updates, between
from manyheads.runner.answers.scale.plan import Plan
from manyheads.runner.answers.scale.simulator.interval import between_launches
from manyheads.runner.answers.scale.simulator.network import Cluster, Link
from manyheads.runner.answers.scale.simulator.predict import Measured, PredictedUpdate
from manyheads.runner.answers.scale.simulator.replay import Assumptions
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate
from manyheads.runner.answers.scale.targets import Target, counts, target_of
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from tests.benchmarks.scaling.network_here import Sums, link_of
from tests.benchmarks.scaling.ranks_here import USED, RanksHere
from tests.benchmarks.scaling.validated import Compared, Validated

FEW = 2  # predictions start from one rank, and from this many
LEAST = 0.1  # CPUs of a rank


@dataclass(frozen=True)
class Basis:
    """The measurements from which predictions start.

    ``small``, ``large``: of one rank, with the smallest and the largest micro-batch; ``wrapped``: see
    ``wrapped_updates``; ``two``: of FEW ranks; ``again``: the same in another launch, which only says how launches
    differ; ``few``, ``many``: the network between FEW and between the most ranks.
    """

    small: MeasuredStep
    large: MeasuredStep
    wrapped: Updates | None
    two: Updates
    again: Updates
    few: Sums
    many: Sums

    @property
    def slowdown(self) -> float:
        """Seconds that computing loses for each second of a concurrent exchange."""
        return (self.few.slowdown + self.many.slowdown) / 2

    @property
    def varied(self) -> float:
        """The largest fraction by which updates took longer in one round than in another."""
        return max(self.large.updates.varied, self.two.varied, self.again.varied)

    def start(self, devices: int, step: DeviceUpdate, updates: Updates) -> Measured:
        """The start of predictions: updates on this many devices, and how far they may be off."""
        launches = between_launches((self.two.seconds, self.again.seconds))
        network = max(self.few.error, self.many.error)
        return Measured(devices, updates.seconds, step, updates.error, launches, network)

    def link(self, run: RunConfig) -> Link:
        """The network between the ranks."""
        cycle = run.parallel.exchanges(devices=FEW).cycle
        return link_of(self.few, self.many, cycle=cycle)


def measured_basis(here: RanksHere, targets: Sequence[Target]) -> Basis:
    """Measure one rank, two ranks, and the network. ``targets``: in ascending order; the first has two ranks."""
    sizes = sorted({each.samples for each in targets})
    large = here.alone(sizes[-1])
    small = large if sizes[0] == sizes[-1] else here.alone(sizes[0])
    two, most = targets[0], targets[-1]
    few = here.sums(two)
    wrapped = here.wrapped(sizes[-1])
    updates, again = here.updates(two), here.updates(two)
    return Basis(small, large, wrapped, updates, again, few, few if two is most else here.sums(most))


def predictions(run: RunConfig, targets: Sequence[Target], basis: Basis) -> dict[int, list[PredictedUpdate]]:
    """The predictions that start from one rank and from FEW, by the number of ranks from which they start."""
    link = basis.link(run)
    cluster = Cluster(1, link, link)
    assumptions = Assumptions(slowdown=basis.slowdown)
    step = between(basis.small, basis.large, targets[0].samples, factor=1.0)
    starts = {
        1: basis.start(1, basis.large.step, basis.wrapped or basis.large.updates),
        FEW: basis.start(FEW, step, basis.two),
    }
    found = {}
    for number, start in starts.items():
        memory: list[int | None] = [None for _ in targets]
        plan = Plan(run, [*targets], cluster, 0.0, basis.small, basis.large, memory, None, start, assumptions)
        found[number] = plan.predicted(run.parallel, [each.devices for each in targets if each.devices > number])
    return found


def validate(words: Sequence[str], *, devices: str, batch: str, config_dir: str | None = None) -> Validated:
    """Predict, then measure. The arguments are those of ``scale``. Raises ConfigurationError, RunFailed."""
    run = subject_of(words, config_dir=config_dir).run
    wanted = [each for each in counts(devices) if each > 1]
    if not wanted:
        raise not_allowed("--devices", devices, "numbers of ranks above 1, such as 2,3,4")
    targets = [target_of(run, count, batch) for count in sorted({FEW, *wanted})]
    _refuse(run)
    here = RanksHere(run, targets[-1].devices)
    if here.cpus < LEAST:
        most = int(hardware.cpu_cores() * USED / LEAST)
        allowed = f"up to {most} on this machine, so that each rank has {LEAST} CPUs"
        raise not_allowed("--devices", devices, f"numbers of ranks {allowed}")
    with here.limited(samples=targets[-1].samples):
        basis = measured_basis(here, targets)
        found = predictions(run, targets, basis)
        truth = {each.devices: here.updates(each) for each in targets if each.devices in wanted}
    rows = [
        Compared.of(start, each, truth[each.devices].seconds)
        for start, all_of_it in found.items()
        for each in all_of_it
        if each.devices in truth
    ]
    varied = max([basis.varied, *(each.varied for each in truth.values())])
    return Validated(run.parallel.name, run.launcher.name, here.cpus, basis.link(run), basis.slowdown, varied, rows)


def _refuse(run: RunConfig) -> None:
    """Raises ConfigurationError for a run whose ranks are not separate CPU processes on this machine alone."""
    wrong: Any = None
    if run.on_gpus:
        wrong = "trainer.device", run.trainer.device, "cpu"
    elif run.launcher.one_process or run.launcher.ranks != run.launcher.nproc_per_node:
        wrong = "launcher", run.launcher.name, "one that starts ranks on this machine alone, such as spawn"
    if wrong is not None:
        key, value, allowed = wrong
        raise ConfigurationError.at(
            key, value, f": predictions are compared with ranks on this machine's CPUs. Set {key} to {allowed}."
        )
