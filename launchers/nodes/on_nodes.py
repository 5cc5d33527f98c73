"""Any launcher on several machines: an agent starts on each what the launcher orders for it."""

from manyheads.launchers.launcher import Job, Launcher
from manyheads.launchers.nodes.run_on_nodes import run_on_nodes


class OnNodes(Launcher):
    """Runs a launcher's ranks on the machines that its settings name."""

    def __init__(self, launcher: Launcher):
        super().__init__(**launcher.common_arguments())
        self.machines, self.settings, self._launcher = launcher.machines, launcher.settings, launcher

    def launch(self, job: Job) -> None:
        assert self.settings is not None
        run_on_nodes(self.settings, job, self._launcher.order, stall_timeout=self.stall_timeout)
