"""Machines as they are: IPv6 alone, an interface that leads nowhere, no names, a small /dev/shm, no root."""

import time
from contextlib import ExitStack
from typing import Any

import pytest

from tests.launchers.nodes.cluster import Cluster, started
from tests.launchers.nodes.conftest import gone, runs
from tests.needs import require

pytestmark = pytest.mark.ci

SHORT = ("parallel=ddp", "launcher=torchrun", "launcher.nproc_per_node=1", "trainer.max_steps=10")
MET = ("launcher.nodes=2", "launcher.rendezvous=10.77.0.1:29400")


def small(path: str, size: str = "64k") -> str:
    return f"mount -t tmpfs -o size={size} tmpfs {path};"


FULL = small("/dev/shm") + " cat /dev/zero > /dev/shm/filling 2> /dev/null;"


@pytest.fixture
def made(tmp_path):
    """Makes a cluster and starts runs on it."""
    with ExitStack() as stack:

        def make(**options: Any):
            cluster = stack.enter_context(started(tmp_path, 2, **options))
            return cluster, stack.enter_context(runs(cluster, tmp_path))

        yield make


def completed(cluster: Cluster, *running) -> None:
    for each in running:
        assert each.end(150) == 0, each.text()
    result = running[0].folder.read_result()
    assert (result["status"], result["world_size"]) == ("completed", 2)
    gone(cluster, seconds=5)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
def test_ipv6_alone(made) -> None:
    cluster, start = made(ipv6=True)
    completed(cluster, start("run", *SHORT, cluster.hosts(1)))


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", [None, 1000], ids=["root", "an ordinary user"])
def test_a_small_dev_shm(made, user: int | None) -> None:
    """Typed on each machine, since the tests' remote shell is root's."""
    if user is not None:
        require("create user namespaces")
    cluster, start = made(first=small("/dev/shm"), user=user)
    completed(cluster, *(start("run", *SHORT, *MET, node=node) for node in (1, 2)))


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
@pytest.mark.parametrize("interface", [None, "eth0"])
def test_an_interface_beside_one_that_leads_nowhere(made, interface: str | None) -> None:
    """The one that leads to the others is found, or named."""
    cluster, start = made()
    for node in cluster.nodes:
        cluster.add_dead_end(node)
    given = [] if interface is None else [f"launcher.network_interface={interface}"]
    completed(cluster, start("run", *SHORT, *given, cluster.hosts(1)))


@pytest.mark.processes
@pytest.mark.timeout(100)
def test_an_interface_that_leads_nowhere(made) -> None:
    cluster, start = made()
    for node in cluster.nodes:
        cluster.add_dead_end(node)
    began = time.monotonic()
    running = start("run", *SHORT, "launcher.network_interface=eth1", "launcher.start_timeout=60", cluster.hosts(1))
    assert running.end(60) == 1
    assert time.monotonic() - began < 45
    said = running.text().strip().splitlines()[-1]
    assert said.startswith("error: machine 10.77.0.2 failed first: NodeLost: no agent could be started there: ")
    assert "no connection to the run's parent at 10.78.0.1:" in said
    gone(cluster, seconds=5)


@pytest.mark.processes
@pytest.mark.timeout(100)
def test_a_full_dev_shm(made) -> None:
    cluster, start = made(first=FULL)
    running = start("run", *SHORT, cluster.hosts(1))
    assert running.end(60) == 1
    said = running.text().strip().splitlines()[-1]
    assert "No space left on device" in said
    assert "/dev/shm" in said
    assert "(node" in said
    gone(cluster, seconds=5)
