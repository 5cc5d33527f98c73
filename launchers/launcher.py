"""The base class of launchers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from manyheads.launchers.job import Job
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:  # a run on this machine knows of no others
    from manyheads.launchers.node_settings import NodeSettings


class Launcher:
    """Starts the ranks of one run and returns when all have ended."""

    def __init__(
        self,
        *,
        name: str,
        nproc_per_node: int,
        threads_per_rank: int,
        stall_timeout: float,
        timeout: float | None = None,
        wait_policy: str = "default",
        numa: bool = False,  # done by the ranks
        devices: str = "any",  # before they start
        wait: object = None,
    ):
        self.name = name
        self.ranks = nproc_per_node
        self.threads = threads_per_rank
        self.stall_timeout = stall_timeout
        self.timeout, self.wait_policy = timeout, wait_policy
        self.machines: dict[str, int] = {}  # ranks on each, by name; empty: this machine alone
        self.settings: NodeSettings | None = None  # of a run on several machines

    def common_arguments(self) -> Mapping[str, Any]:
        """The arguments of a launcher of a different kind that starts as many ranks, in the same way."""
        return {
            "name": self.name,
            "nproc_per_node": self.ranks,
            "threads_per_rank": self.threads,
            "stall_timeout": self.stall_timeout,
            "timeout": self.timeout,
            "wait_policy": self.wait_policy,
        }

    def prepare(self, environment: Mapping[str, str], imports: Sequence[str]) -> None:
        """Start slow preparations in the background.

        ``environment``: the next job's; ``imports``: modules that its ranks will import.
        """

    def refuse_early(self, run: RunConfig, environment: Mapping[str, str]) -> None:
        """Check what ranks would refuse only long after the command was typed. Raises ConfigurationError.

        ``environment``: as for ``prepare``, which was called before.
        """

    @property
    def is_elsewhere(self) -> bool:
        """Whether the run's parent is not this process, but for example a job in a queue."""
        return False

    def launch_elsewhere(self, folder: RunFolder, run: RunConfig, signals: list[int]) -> ResultJson:
        """Have the run executed elsewhere; returns and raises as ``launchers.launch.launch``."""
        raise NotImplementedError

    def ended(self, folder: RunFolder, reason: BaseException) -> None:
        """Called when the run has ended without completing, after result.json has been written."""

    def launch(self, job: Job) -> None:
        """Start the ranks and wait for them; leaves no process behind.

        Raises RunFailed, ConfigurationError (found by a rank) or Interrupted.
        """
        raise NotImplementedError

    def launch_on_machines(self, job: Job, run: Callable[..., None]) -> None:
        """Start the ranks on the machines of ``settings`` by ``run``, and wait for them. Raises as ``launch``.

        ``run``: ``nodes.run_on_nodes.run_on_nodes``.
        """
        raise NotImplementedError

    def as_child_process(self) -> "Launcher":
        """A launcher for the same run that has no rank in the parent's own process."""
        return self
