"""launcher=torchrun: PyTorch's own launcher, an agent on each machine that starts the ranks.

Source: https://pytorch.org/docs/stable/elastic/run.html. On one machine, the agent's store and the ranks'
rendezvous are files, new for each run: runs on one machine cannot clash, and nothing listens beyond the loopback
interface. On several machines, each machine's ranks are fixed (--node-rank) rather than negotiated by torchrun's
agents, so the same machines give bit-identical results; the parent keeps track of the machines.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from manyheads.launchers.agent_program import as_module, ordered, run_agent
from manyheads.launchers.environment import file_rendezvous
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.node_settings import KEYS, NodeSettings
from manyheads.runner.run import scratch
from manyheads.runner.run.hosts import read_hosts

if TYPE_CHECKING:  # a run on this machine knows of no others
    from manyheads.launchers.nodes.run_on_nodes import NodeShare

NO_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # else the agent serves ranks on all interfaces
AGENT = as_module("torch.distributed.run")
_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


class TorchrunOption(LauncherOption):
    """Declares that nothing but torch is needed."""


class Torchrun(Launcher):
    """Runs torchrun, with its messages in logs/torchrun.log, or logs/torchrun_<machine>.log on several machines."""

    def __init__(self, **options: Any):
        section = {**options, **{key: options.pop(key, None) for key in KEYS}}
        super().__init__(**options)
        self.settings = NodeSettings.of(section)
        hosts = read_hosts(section["hosts"], section["hostfile"])
        self.machines = hosts if self.settings else {}
        self.ranks *= self.settings.most if self.settings else max(1, len(hosts))

    def launch_on_machines(self, job: Job, run: Callable[..., None]) -> None:
        run(self.settings, job, order, stall_timeout=self.stall_timeout)

    def launch(self, job: Job) -> None:
        with scratch.folder() as folder, file_rendezvous() as rendezvous:
            run_agent(
                command(job, str(folder)),
                job,
                environment={**os.environ, **job.environment, **rendezvous, **NO_STORE},
                log=job.folder.logs / "torchrun.log",
                read_exit_codes=exit_codes,
                stall_timeout=self.stall_timeout,
            )


def command(job: Job, folder: str) -> list[str]:
    """Torchrun's command line for one machine. ``folder``: a folder for its own files, which it does not remove."""
    store = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{folder}/store", "--rdzv-conf", "store_type=file"]
    options = ["--local-addr", "127.0.0.1", "--log-dir", folder, "--nproc-per-node", str(job.ranks)]
    options += [*store, "--rdzv-id", "run"]
    return [sys.executable, *AGENT, *options, "-m", job.main, str(job.folder.path)]


def order(job: Job, shares: "list[NodeShare]", number: int) -> dict[str, Any]:
    """The order for machine ``number``, which fills in ``{python}`` and ``{scratch}`` itself."""
    share, first = shares[number], shares[0].node
    options = ["--nnodes", str(len(shares)), "--node-rank", str(number), "--nproc-per-node", str(len(share.ranks))]
    options += ["--master-addr", first.address, "--master-port", str(first.port), "--local-addr", share.node.address]
    options += ["--log-dir", "{scratch}"]
    worker = ["-m", job.main, str(job.folder.path)]
    return ordered(["{python}", *AGENT, *options, *worker], exit_codes, log=f"torchrun_{number}.log")


def exit_codes(text: str) -> dict[int, int]:
    """Exit codes of the failed ranks from torchrun's closing report; negative: the signal that killed one."""
    return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}
