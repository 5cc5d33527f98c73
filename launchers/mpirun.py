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
from typing import Any, ClassVar

from manyheads.launchers.agent_program import relay_stdout, run_agent
from manyheads.launchers.environment import rendezvous
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.launcher_option import LauncherOption
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.machine.hardware import cpu_cores
from manyheads.runner.parallel import horovod_installation as horovod
from manyheads.runner.run import scratch
from manyheads.runner.run.hosts import count_nodes, read_hosts
from manyheads.runner.run.rank_info import EXPORTED, without_place

_EXITED = re.compile(r"Process name: (?:\[\S*,)?(\d+)\]?\s+Exit code:\s+(\d+)")
_SIGNALLED = re.compile(r"process rank (\d+) with PID .* exited on signal (\d+)")


class OneMachineOption(LauncherOption):
    """Starts ranks on this machine; on several, users start its program themselves. ``by_user``: how that begins."""

    by_user: ClassVar[str]

    def check_keys(self) -> None:
        super().check_keys()
        machines = self.machines
        if count_nodes(None, machines) is None:
            return
        key = "launcher.hosts" if self.hostfile is None else "launcher.hostfile"
        listed = ",".join(f"{host}:{slots}" for host, slots in machines.items())
        first, count = shlex.quote(next(iter(machines))), sum(machines.values())
        begin = self.by_user.format(first=first, count=count, hosts=shlex.quote(listed))
        typed = shlex.join(word for word in invocation.as_typed() if not word.startswith(("launcher=", "launcher.")))
        raise ConfigurationError.at(
            key,
            self.hostfile or f"[{listed}]",
            f": launcher={self.name} starts ranks on this machine only; on several, type: {begin} {typed}",
        )


class MpirunOption(OneMachineOption):
    """Declares that Open MPI is needed, and for parallel=horovod a Horovod built with MPI."""

    by_user = "mpirun -np {count} -H {hosts} -x MASTER_ADDR={first}"
    horovod_controller = "mpi"

    def unavailable(self) -> str | None:
        return horovod.without_mpirun()

    def note(self) -> str:
        without = "" if horovod.has("mpi") else "; without a Horovod built with MPI, for parallel=ddp only"
        return f"Open MPI {horovod.open_mpi()}{without}"


class OneMachine(Launcher):
    """Runs a program that starts the ranks, with its messages in logs/<program>.log.

    ``arguments``: further options, as on its command line.
    """

    program: ClassVar[str]

    def __init__(self, *, hosts: list[str] | None, hostfile: str | None, arguments: str | None, **options: Any):
        super().__init__(**options)
        self.machines = read_hosts(hosts, hostfile)
        self.ranks *= max(1, len(self.machines))
        self.arguments = shlex.split(arguments or "")

    def launch(self, job: Job) -> None:
        with relay_stdout() as terminal, rendezvous() as meeting, own_session() as session:
            added = {**job.environment, **meeting, **terminal}
            environment = {**without_place(os.environ), **session, **added}
            run_agent(
                self._command(job, environment, added),
                job,
                environment=environment,
                log=job.folder.logs / f"{self.program}.log",
                read_exit_codes=self._exit_codes,
                stall_timeout=self.stall_timeout,
                quiet=True,
            )

    def _command(self, job: Job, environment: dict[str, str], added: dict[str, str]) -> list[str]:
        """The command line. ``environment``: of the program; ``added``: what ranks need of it in addition to ours."""
        raise NotImplementedError

    def _exit_codes(self, text: str) -> dict[int, int]:
        """The exit codes of failed ranks in the program's messages."""
        return exit_codes(text)


class Mpirun(OneMachine):
    """Runs mpirun."""

    program = "mpirun"

    def _command(self, job: Job, environment: dict[str, str], added: dict[str, str]) -> list[str]:
        # By default Open MPI binds each rank to one core, however many threads it has.
        options = ["-np", str(job.ranks), "--bind-to", "none", "--map-by", "slot", "--use-hwthread-cpus"]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
        if self.machines:
            options += ["-H", ",".join(f"{host}:{slots}" for host, slots in self.machines.items())]
        elif job.ranks > cpu_cores():
            options.append("--oversubscribe")
        options += ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"]
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
