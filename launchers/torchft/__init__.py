"""launcher=torchft: a process for each replica, restarted when it dies, and torchft's lighthouse."""

import tempfile
from dataclasses import replace
from typing import Any, ClassVar

from manyheads.launchers.base import Job
from manyheads.launchers.option import LauncherOption
from manyheads.launchers.processes import supervise
from manyheads.launchers.spawn import Spawn
from manyheads.launchers.torchft.lighthouse import Lighthouse
from manyheads.launchers.torchft.replicas import Replicas
from manyheads.runner.option.declared import declared
from manyheads.runner.option.rules import number
from manyheads.runner.parallel.replicated.option import missing
from manyheads.runner.run.errors import ConfigurationError


class TorchftOption(LauncherOption):
    """Declares that torchft is needed."""

    rules: ClassVar = {"hang_timeout": number(above=0), "heartbeat_timeout": number(above=0)}
    restarts_ranks = True

    def note(self) -> str:
        return "for parallel=replicated"

    def unavailable(self) -> str | None:
        return missing()

    def complete(self, config: dict[str, Any]) -> None:
        super().complete(config)
        if self.section["nproc_per_node"] > 1 and not declared("parallel", config["parallel"]).outlives_ranks:
            raise ConfigurationError(
                f"launcher=torchft restarts a rank that died, which parallel={config['parallel']['name']} can't "
                "handle. Set launcher=spawn, or parallel=replicated."
            )


class Torchft(Spawn):
    """Ranks as child processes that find each other through the lighthouse."""

    def __init__(self, *, max_restarts: int, hang_timeout: float, heartbeat_timeout: float, **options: Any):
        super().__init__(**options)
        self.max_restarts, self.hang_timeout = max_restarts, hang_timeout
        self.heartbeat_timeout = heartbeat_timeout

    def launch(self, job: Job) -> None:
        with tempfile.TemporaryDirectory(prefix="manyheads-") as scratch:
            lighthouse = Lighthouse(job, heartbeat_timeout=self.heartbeat_timeout)
            found = {"MANYHEADS_LIGHTHOUSE": lighthouse.address, "MANYHEADS_REPLICAS": scratch, "RUST_LOG": "warn"}
            environment = {**job.environment, **found}
            replicas = Replicas(
                lambda rank: self._start(job, rank, dict(environment)),
                job,
                lighthouse,
                max_restarts=self.max_restarts,
                hang_timeout=self.hang_timeout,
            )
            supervise(replicas, replace(job, heartbeat=replicas.shown), stall_timeout=self.stall_timeout)
