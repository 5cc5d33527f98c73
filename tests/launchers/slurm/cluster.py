"""A real Slurm on this host: a controller and a slurmd for each node, on ports of their own, below one folder."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

# No key daemon, no cgroups, no accounting: a stranger's site lacks some of these too.
CONFIGURATION = """\
ClusterName=manyheads
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/controller.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
SwitchType=switch/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=10
SlurmdTimeout=30
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
{nodes}
PartitionName=main Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n[1-{count}] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes=n[1-{count}] MaxTime=5 State=UP PriorityTier=1
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=1000 Gres=gpu:2 State=UNKNOWN"
)


class Slurm:
    """The cluster of nodes n1, n2, ..., with its clients' commands. ``environment``: what a client needs to find it."""

    def __init__(self, folder: Path, nodes: int = 2):
        self.folder = folder
        self._nodes = [f"n{number + 1}" for number in range(nodes)]
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        """Return when jobs can run."""
        (self.folder / "state").mkdir()
        controller, *ports = _free_ports(1 + len(self._nodes))
        host, user = socket.gethostname().partition(".")[0], psutil.Process().username()
        nodes = "\n".join(
            NODE.format(name=name, host=host, port=port) for name, port in zip(self._nodes, ports, strict=True)
        )
        about = {"folder": self.folder, "host": host, "user": user, "controller": controller}
        text = CONFIGURATION.format(**about, nodes=nodes, count=len(self._nodes))
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        self.start_controller()
        for node in self._nodes:
            (self.folder / node).mkdir()
            self.start_node(node)
        idle = f"idle {len(self._nodes)}"
        self.wait(
            lambda: self.client("sinfo", "-h", "-o", "%T %D") == idle, "nodes are not idle", 30 + len(self._nodes)
        )

    def start_controller(self) -> None:
        self._run("controller", "slurmctld", "-D")

    def stop_controller(self) -> None:
        """Nothing answers any more. It saves its state first: when killed, it forgets the last seconds."""
        self._daemons["controller"].terminate()
        self._daemons["controller"].wait()

    def start_node(self, name: str) -> None:
        self._run(name, "slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        """Slurm's daemon and all that its jobs run there end at once, as if the machine had lost its power."""
        self._daemons[name].kill()
        self._daemons[name].wait()
        for process in [each for each in psutil.process_iter() if self._is_of(each, name)]:
            with suppress(psutil.NoSuchProcess):
                starters = [each for each in process.parents() if each.name().startswith("slurmstepd")]
                for each in [*starters, process]:
                    each.kill()

    def _is_of(self, process: psutil.Process, node: str) -> bool:
        try:
            found = process.environ()
        except psutil.Error:
            return False
        return found.get("SLURMD_NODENAME") == node and found.get("SLURM_CONF") == self.environment["SLURM_CONF"]

    def _run(self, name: str, *command: str) -> None:
        program = shutil.which(command[0]) or command[0]
        with open(self.folder / f"{'_'.join(command)}.out", "ab") as output:
            options = ["-f", self.environment["SLURM_CONF"]]
            environment = {**os.environ, **self.environment}
            self._daemons[name] = subprocess.Popen(
                [program, *command[1:], *options], env=environment, stdout=output, stderr=output, cwd=self.folder
            )

    def client(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, text=True)
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """Those that are in the queue."""
        return self.client("squeue", "-h", "-o", "%i").split()

    def wait(self, condition, why: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{why}: {self.client('scontrol', 'show', 'job')}"
            time.sleep(0.1)

    def clear(self) -> None:
        """Cancel what is left, and wait until the nodes are idle."""
        self.client("scontrol", "update", f"nodename={','.join(self._nodes)}", "state=resume")
        if jobs := self.jobs():
            self.client("scancel", *jobs)
            self.wait(lambda: not self.jobs(), "jobs that were cancelled stay")

    def stop(self) -> None:
        """End all that was started, and what is below it."""
        daemons = list(self._daemons.values())
        everything = [child for d in daemons for child in _below(d.pid)]
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        steps = [p for p in psutil.process_iter() if _names(p, str(self.folder))]
        for process in [*everything, *steps]:
            if process.is_running():
                process.kill()


@contextmanager
def started(folder: Path, nodes: int = 2) -> Iterator[Slurm]:
    """A cluster for a while."""
    cluster = Slurm(folder, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _names(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in part for part in process.cmdline())
    except psutil.Error:
        return False


def _free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
