"""The engines: where a run's machines come from, and how one is lost. All of them are on this machine.

``processes``: agents beside each other. ``namespaces``: each with its own address, interface and host name; what is
lost is the link. ``slurm``: a daemon for each node. ``ray``: a Ray node for each; a lost one is replaced.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from manyheads.launchers.nodes.starting import AGENT
from tests.launchers.nodes import cluster as network
from tests.launchers.ray_cluster import cluster as ray_cluster
from tests.launchers.slurm import cluster as slurm_cluster

AWAY = 5.0  # seconds beyond the silence after which a machine counts as lost, for which its link stays cut
RESTARTS = 1000
COMMON = {"rendezvous": None, "per_node": 1, "interface": None, "start_timeout": 300.0, "max_restarts": RESTARTS}
LIMITS = ("launcher.start_timeout=300", f"launcher.max_restarts={RESTARTS}", "launcher.nproc_per_node=1")


@dataclass
class Place:
    """Machines for runs. ``lose``: loses this many of those of the run in a folder, by a random choice, for a while.

    ``overrides``, ``settings``: of the run; ``prefix``: the command line in which its parent's is the end;
    ``environment``: its variables.
    """

    lose: Callable[[Path, int, random.Random], None]
    overrides: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def agents(folder: Path) -> list[psutil.Process]:
    """The agents of the run in this folder, on whatever machine."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if AGENT in words and any(word.startswith(f"{folder}/") for word in words):
                found.append(process)
    return found


def kill(folder: Path, count: int, chance: random.Random) -> None:
    """Kill the agents of this many machines; the run's parent starts others."""
    alive = sorted(agents(folder), key=lambda each: each.pid)
    for each in chance.sample(alive, min(count, len(alive))):
        with suppress(psutil.Error):
            each.kill()


@contextmanager
def processes(machines: int, folder: Path) -> Iterator[Place]:
    names = {f"machine{number}": "127.0.0.1" for number in range(machines)}
    settings = {"hosts": [*names], "shell": "sh -c", "silence": 30.0, "addresses": names}
    yield Place(kill, ["launcher=torchrun"], {**COMMON, **settings, "fewest": machines, "most": machines})


@contextmanager
def namespaces(machines: int, folder: Path) -> Iterator[Place]:
    silence = 10.0
    with network.started(folder, machines) as cluster:
        own = [cluster.address(node) for node in cluster.nodes]

        def cut(_: Path, count: int, chance: random.Random) -> None:
            for node in chance.sample(range(2, machines + 1), min(count, machines - 1)):  # the parent is on the first
                cluster.cut(node)
                threading.Timer(silence + AWAY, cluster.mend, [node]).start()

        settings = {"hosts": own, "shell": f"{cluster.shell} {{host}}", "silence": silence}
        about = {**COMMON, **settings, "fewest": machines, "most": machines}
        yield Place(cut, ["launcher=torchrun"], about, prefix=cluster.on(1))


@contextmanager
def slurm(machines: int, folder: Path) -> Iterator[Place]:
    with slurm_cluster.started(folder, machines) as cluster:
        overrides = ["launcher=slurm", f"launcher.nodes={machines}", f"data.batch_size={4 * machines}", *LIMITS]
        prefix = ["salloc", "--quiet", f"--nodes={machines}", "--ntasks-per-node=1", "--cpus-per-task=1"]
        yield Place(kill, overrides, prefix=prefix, environment=cluster.environment)


@contextmanager
def ray(machines: int, folder: Path) -> Iterator[Place]:
    with ray_cluster.cluster(nodes=machines) as cluster:

        def lose(_: Path, count: int, chance: random.Random) -> None:
            for _ in range(count):
                ray_cluster.lose_a_node(cluster)
            ray_cluster.fill(cluster, nodes=machines)

        place = [f"launcher.address={cluster.address}", "launcher.cpus_per_rank=1", f"launcher.nodes={machines}"]
        yield Place(lose, ["launcher=ray", *place, f"data.batch_size={4 * machines}", *LIMITS])


ENGINES: dict[str, Callable[[int, Path], AbstractContextManager[Place]]] = {
    "processes": processes,
    "namespaces": namespaces,
    "slurm": slurm,
    "ray": ray,
}
