"""The job that a launcher receives: a run to start, and how it is watched."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from manyheads.runner.errors import Failure, Kind, RunFailed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat, Report, failures_of
from manyheads.runner.run.run_folder import RunFolder

TRAIN = "manyheads.runner.loop.rank_main"


@dataclass(frozen=True)
class Job:
    """A run to start: its folder, the number of its ranks, and their environment."""

    folder: RunFolder
    ranks: int
    environment: dict[str, str]
    heartbeat: Heartbeat
    signals: list[int]  # received by the parent, in order
    timeout: float | None = None  # minutes that the run may take
    main: str = TRAIN  # the module whose main(folder) is a rank
    started: float = field(default_factory=time.monotonic)
    own: Sequence[int] | None = None  # the ranks that are watched from here; None: all
    added: dict[str, Any] = field(default_factory=dict)  # recorded in result.json: how the run was started
    name_of: Callable[[int], str] = "rank {}".format  # a rank's name, with its machine if there are several
    run: RunConfig | None = None  # None: no run, machines are only examined
    reports: Callable[[], list[Report]] | None = None  # how ranks failed; None: read from the heartbeat
    is_untried: bool = False  # whether ranks accept the user's classes is not known yet

    @property
    def watched(self) -> Sequence[int]:
        """The ranks that this process watches."""
        return range(self.ranks) if self.own is None else self.own

    def fits(self, ranks: int) -> bool:
        """Whether the batch divides among this many ranks."""
        return self.run is None or self.run.fits(ranks)

    def failures(self) -> list[Failure]:
        """How the watched ranks failed, the earliest first."""
        failures = failures_of(self.reports() if self.reports else self.heartbeat.reports())
        return [failure for failure in failures if failure.rank is None or failure.rank in self.watched]

    def check_timeout(self) -> None:
        """Raises RunFailed if the run has exceeded its time limit."""
        if self.timeout is not None and time.monotonic() - self.started > 60 * self.timeout:
            message = f"the run took longer than launcher.timeout={self.timeout:g} minutes. Set it higher, or to null."
            raise RunFailed(Failure(Kind.TIMED_OUT, message=message))
