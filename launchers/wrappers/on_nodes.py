"""Any launcher on several machines: an agent starts on each what the launcher orders for it.

Functions import what they need: most runs stay on one machine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.launchers.nodes.examine_hosts import HostFinding


class OnNodes(Launcher):
    """Runs a launcher's ranks on the machines that its settings name."""

    def __init__(self, launcher: Launcher):
        super().__init__(**launcher.common_arguments())
        self.machines, self.settings, self._launcher = launcher.machines, launcher.settings, launcher

    def prepare(self, environment: Mapping[str, str], imports: Sequence[str]) -> None:
        self._launcher.prepare(environment, imports)

    def refuse_early(self, run: RunConfig, environment: Mapping[str, str]) -> None:
        from manyheads.launchers import warm_server

        warm_server.check_once(run, environment)

    def launch(self, job: Job) -> None:
        from manyheads.launchers.nodes.run_on_nodes import run_on_nodes

        self._launcher.launch_on_machines(job, run_on_nodes)

    def ended(self, folder: RunFolder, reason: BaseException) -> None:
        self._launcher.ended(folder, reason)


def around(launcher: Launcher) -> Launcher:
    """The launcher on the machines of its settings."""
    return OnNodes(launcher)


def join(option: LauncherOption, digests: dict[str, str]) -> None:
    """Take part, until it ends, in the run at the rendezvous that the launcher names. Raises as ``joining.join``."""
    from manyheads.launchers.nodes import joining

    joining.join(option, digests)


def examine(
    hosts: list[str], *, shell: str | None, interface: str | None, say: Callable[[str], None]
) -> "list[HostFinding]":
    """Examine machines, as ``examine_hosts.examine`` does. Raises ConfigurationError."""
    from manyheads.launchers.nodes import examine_hosts

    return examine_hosts.examine(hosts, shell=shell, interface=interface, say=say)
