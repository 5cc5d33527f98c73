"""Any launcher on several machines: an agent starts on each what the launcher orders for it."""

from collections.abc import Mapping, Sequence

from manyheads.launchers import warm_server
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.nodes.examine_hosts import examine
from manyheads.launchers.nodes.joining import join
from manyheads.launchers.nodes.run_on_nodes import run_on_nodes
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder

__all__ = ["around", "examine", "join"]


class OnNodes(Launcher):
    """Runs a launcher's ranks on the machines that its settings name."""

    def __init__(self, launcher: Launcher):
        super().__init__(**launcher.common_arguments())
        self.machines, self.settings, self._launcher = launcher.machines, launcher.settings, launcher

    def prepare(self, environment: Mapping[str, str], imports: Sequence[str]) -> None:
        self._launcher.prepare(environment, imports)

    def refuse_early(self, run: RunConfig, environment: Mapping[str, str]) -> None:
        warm_server.check_once(run, environment)

    def launch(self, job: Job) -> None:
        self._launcher.launch_on_machines(job, run_on_nodes)

    def ended(self, folder: RunFolder, reason: BaseException) -> None:
        self._launcher.ended(folder, reason)


around = OnNodes
