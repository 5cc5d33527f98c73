"""launcher=mpirun: Open MPI's launcher, for Horovod built with MPI, and for DistributedDataParallel.

Sources: https://docs.open-mpi.org/en/v4.1.x/man-openmpi/man1/mpirun.1.html,
https://horovod.readthedocs.io/en/stable/mpirun.html.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from manyheads.launchers.agent_program import VARIABLE, ordered, relay_stdout, run_agent
from manyheads.launchers.environment import exported, rendezvous
from manyheads.launchers.launcher import Job, Launcher
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.node_settings import KEYS, NodeSettings
from manyheads.runner.machine.hardware import cpu_cores
from manyheads.runner.parallel import horovod_installation as horovod
from manyheads.runner.run import scratch
from manyheads.runner.run.heartbeat import PLACE
from manyheads.runner.run.hosts import read_hosts
from manyheads.runner.run.rank_info import EXPORTED, without_place

if TYPE_CHECKING:  # a run on this machine knows of no others
    from manyheads.launchers.nodes.run_on_nodes import NodeShare

# Variables that agents add for their ranks.
AT_AGENT = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT")
_EXITED = re.compile(r"Process name: (?:\[\S*,)?(\d+)\]?\s+Exit code:\s+(\d+)")
_SIGNALLED = re.compile(r"process rank (\d+) with PID .* exited on signal (\d+)")


class MpirunOption(LauncherOption):
    """Declares that Open MPI is needed, and for parallel=horovod a Horovod built with MPI."""

    horovod_controller = "mpi"

    def unavailable(self) -> str | None:
        return horovod.without_mpirun()

    def note(self) -> str:
        without = "" if horovod.has("mpi") else "; without a Horovod built with MPI, for parallel=ddp only"
        return f"Open MPI {horovod.open_mpi()}{without}"


class Mpirun(Launcher):
    """Runs mpirun, with its messages in logs/mpirun.log; ``arguments``: further options, as on its command line."""

    def __init__(self, *, arguments: str | None, **options: Any):
        section = {**options, **{key: options.pop(key, None) for key in KEYS}}
        super().__init__(**options)
        self.settings = NodeSettings.of(section)
        self.machines = read_hosts(section["hosts"], section["hostfile"])
        self.ranks *= max(1, len(self.machines))
        self.arguments = shlex.split(arguments or "")

    def launch(self, job: Job) -> None:
        with relay_stdout() as terminal, rendezvous(self.machines) as meeting, own_session() as session:
            added = {**job.environment, **meeting, **terminal}
            environment = {**without_place(os.environ), **session, **added}
            run_agent(
                self._command(job, environment, added),
                job,
                environment=environment,
                log=job.folder.logs / "mpirun.log",
                read_exit_codes=exit_codes,
                stall_timeout=self.stall_timeout,
                quiet=True,
            )

    def order(self, job: Job, shares: "list[NodeShare]", number: int) -> dict[str, Any]:
        """The first machine runs mpirun; the ``ssh`` that it is given asks the other machines' agents."""
        if number:
            return {"command": None}
        self.machines = {share.address: len(share.ranks) for share in shares}
        added = {**exported(job.environment), **dict.fromkeys((*AT_AGENT, PLACE, VARIABLE), "")}
        command = self._command(job, {}, added)
        network = [
            ("plm_rsh_agent", "{scratch}/ssh"),
            *((f"{part}_tcp_if_include", "{interface}") for part in ("btl", "oob")),
        ]
        options = [word for name, value in network for word in ("--mca", name, value)]
        command = [command[0], *options, *command[1:]]
        command[command.index(sys.executable)] = "{python}"
        return ordered(command, exit_codes, log="mpirun.log", quiet=True, starts_others=True)

    def _command(self, job: Job, environment: dict[str, str], added: dict[str, str]) -> list[str]:
        # By default Open MPI binds each rank to one core, however many threads it has.
        options = ["-np", str(job.ranks), "--bind-to", "none", "--map-by", "slot", "--use-hwthread-cpus"]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
        if self.machines:
            options += ["-H", ",".join(f"{host}:{slots}" for host, slots in self.machines.items())]
        else:
            options += ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"]
            if job.ranks > cpu_cores():
                options.append("--oversubscribe")
        for name in sorted({*added, *filter(EXPORTED.fullmatch, environment)}):
            options += ["-x", name]
        return ["mpirun", *options, *self.arguments, sys.executable, "-m", job.main, str(job.folder.path)]


@contextmanager
def own_session() -> Iterator[dict[str, str]]:
    """Variables that give Open MPI a folder for its sockets and shared memory on this machine.

    By default they are /tmp/ompi.<host>.<user> and files in /dev/shm, which any other user can create first. The
    variables have the names of Open MPI 4 and of 5.
    """
    sockets = "OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"
    with scratch.folder(scratch.base()) as folder:
        yield dict.fromkeys((*sockets, *horovod.OPEN_MPI_MEMORY), str(folder))


def exit_codes(text: str) -> dict[int, int]:
    """The exit code of the rank that failed first, as named by mpirun; negative: the signal that killed it."""
    codes = {int(rank): int(code) for rank, code in _EXITED.findall(text)}
    return codes | {int(rank): -int(signum) for rank, signum in _SIGNALLED.findall(text)}
