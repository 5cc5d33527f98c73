"""Measures a run with several numbers of ranks on this machine, each rank with the same CPU quota."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from manyheads.runner.answers.measure.subject import measure
from manyheads.runner.answers.scale.measured_step import (
    MeasuredStep,
    Updates,
    alone_run,
    measured_step,
    wrapped_updates,
)
from manyheads.runner.answers.scale.targets import Target
from manyheads.runner.config import saved
from manyheads.runner.config.freeze import checked
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.json_types import ResultJson
from tests.benchmarks.scaling.fillers import Fillers, fillers
from tests.benchmarks.scaling.network_here import Sums
from tests.cpu_quota import quotas

RANKS = "tests.benchmarks.scaling"
USED = 0.9  # fraction of the cores for all ranks together: the launcher and the system need the rest


@dataclass
class RanksHere:
    """Measurements of ``run`` on this machine. ``most``: the largest number of ranks, which share the cores."""

    run: RunConfig
    most: int
    fillers: Fillers | None = None

    @property
    def cpus(self) -> float:
        """The quota of each rank in CPUs, the same for every number of ranks."""
        return USED * hardware.cpu_cores() / self.most

    @property
    def threads(self) -> int:
        """Threads of each rank, the same for every number of ranks."""
        return hardware.cores_for_each(self.most)

    @contextmanager
    def limited(self, *, samples: int) -> Iterator[None]:
        """A context in which ranks have their quotas, and fillers use the quotas of ranks that are not started.

        ``samples``: in a micro-batch of the fillers. Raises ConfigurationError if quotas cannot be set.
        """
        with quotas(self.cpus):
            alone = alone_run(self.run, samples=samples, threads=self.threads)
            with fillers(alone, self.most - 1) as self.fillers:
                yield

    def _beside(self, ranks: int) -> AbstractContextManager[None]:
        return nullcontext() if self.fillers is None else self.fillers.beside(ranks)

    def _measure(self, run: RunConfig, ranks: int, *, rank: str) -> ResultJson:
        with self._beside(ranks):
            return measure(run, rank=f"{RANKS}.{rank}")[1]

    def started_on(self, ranks: int, *, batch: int) -> RunConfig:
        """The run config on this many ranks, with this batch size. Raises ConfigurationError."""
        changes = [f"launcher.nproc_per_node={ranks}", f"launcher.threads_per_rank={self.threads}"]
        composed, folders = saved.composed(self.run.written, [*changes, f"data.batch_size={batch}"], chosen=set())
        return checked(composed, folders=folders)

    def alone(self, samples: int) -> MeasuredStep:
        """The update of one rank, measured as ``scale`` does. ``samples``: in a micro-batch."""
        with self._beside(1):
            return measured_step(self.run, samples=samples, threads=self.threads, rank=f"{RANKS}.units")

    def wrapped(self, samples: int) -> Updates | None:
        """Updates on one rank with the run's strategy; None if it needs more. See ``wrapped_updates``."""
        with self._beside(1):
            return wrapped_updates(self.run, samples=samples, threads=self.threads, rank=f"{RANKS}.updates")

    def updates(self, target: Target) -> Updates:
        """Measure updates on several ranks."""
        run = self.started_on(target.devices, batch=target.batch)
        return Updates.of(self._measure(run, target.devices, rank="updates"))

    def sums(self, target: Target) -> Sums:
        """Measure all-reduces between these ranks, by the library that the run's strategy uses."""
        run = self.started_on(target.devices, batch=target.batch)
        return Sums.of(target.devices, self._measure(run, target.devices, rank="collectives")["floors"])
