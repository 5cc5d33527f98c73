"""A run on several numbers of ranks of this machine, each of them with the same CPU quota."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from manyheads.runner.commands.explain.explain_run import measure
from manyheads.runner.commands.explain.limits import UPDATE, Seconds, variation
from manyheads.runner.commands.scale.cpu_quota import quotas
from manyheads.runner.commands.scale.fillers import Fillers, fillers
from manyheads.runner.commands.scale.measured_step import MeasuredStep, alone_run, measured_step, wrapped_seconds
from manyheads.runner.commands.scale.network_here import Sums
from manyheads.runner.commands.scale.targets import Target
from manyheads.runner.config import saved
from manyheads.runner.config.freeze import checked
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.json_types import ResultJson

RANK = "manyheads.runner.commands.scale.rank"
USED = 0.9  # of the cores, by all ranks at most: the launcher and the system need some


class Updates(NamedTuple):
    """``seconds``: of an update of the slowest rank; ``varied``: as in ``limits.variation``."""

    seconds: float
    varied: float


@dataclass
class RanksHere:
    """Measures on this machine. ``most``: ranks, by which the cores are divided."""

    run: RunConfig
    most: int
    fillers: Fillers | None = None

    @property
    def cpus(self) -> float:
        """CPUs of each rank, however many there are."""
        return USED * hardware.cpu_cores() / self.most

    @property
    def threads(self) -> int:
        return hardware.cores_for_each(self.most)

    @contextmanager
    def limited(self, *, samples: int) -> Iterator[None]:
        """Meanwhile ranks have their quotas, and trainings use those of ranks that are not started.

        ``samples``: of a micro-batch of these trainings. Raises ConfigurationError where quotas cannot be set.
        """
        with quotas(self.cpus):
            alone = alone_run(self.run, samples=samples, threads=self.threads)
            with fillers(alone, self.most - 1) as self.fillers:
                yield

    def _beside(self, ranks: int) -> AbstractContextManager[None]:
        return nullcontext() if self.fillers is None else self.fillers.beside(ranks)

    def _measure(self, run: RunConfig, ranks: int, *, rank: str) -> ResultJson:
        with self._beside(ranks):
            return measure(run, rank=f"{RANK}.{rank}")[1]

    def started_on(self, ranks: int, *, batch: int) -> RunConfig:
        """The run as it is started on these ranks. Raises ConfigurationError."""
        changes = [f"launcher.nproc_per_node={ranks}", f"launcher.threads_per_rank={self.threads}"]
        composed, folders = saved.composed(self.run.written, [*changes, f"data.batch_size={batch}"], chosen=set())
        return checked(composed, folders=folders)

    def alone(self, samples: int) -> MeasuredStep:
        """An update of one rank, as ``scale`` measures it."""
        with self._beside(1):
            return measured_step(self.run, samples=samples, threads=self.threads)

    def wrapped(self, samples: int) -> float | None:
        """Seconds of an update of one rank with the run's strategy, if it can have one."""
        with self._beside(1):
            return wrapped_seconds(self.run, samples=samples, threads=self.threads)

    def updates(self, target: Target) -> Updates:
        """Updates on several ranks."""
        run = self.started_on(target.devices, batch=target.batch)
        result = self._measure(run, target.devices, rank="updates")
        found = {UPDATE: Seconds.of(result["floors"][UPDATE])}
        return Updates(found[UPDATE].median, variation(found))

    def sums(self, target: Target) -> Sums:
        """The network between these ranks, through the library that the run's strategy uses."""
        run = self.started_on(target.devices, batch=target.batch)
        return Sums.of(target.devices, self._measure(run, target.devices, rank="collectives")["floors"])
