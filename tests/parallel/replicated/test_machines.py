"""Replicas on several machines, which are network namespaces: whatever is lost, the run is the undisturbed one."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.in_process import SMALL
from tests.launchers.conftest import PROJECT
from tests.launchers.nodes.cluster import started
from tests.launchers.nodes.conftest import gone, runs
from tests.launchers.nodes.test_who_listens import listening
from tests.parallel.replicated.runs import IF_TORCHFT, PACE, PACED, REPLICATED, assert_equal, own, undisturbed

pytestmark = [IF_TORCHFT, pytest.mark.processes, pytest.mark.tail, pytest.mark.timeout(400)]

LENGTH = (*PACED, "trainer.epochs=60")
LIMITS = ("launcher.node_timeout=4", "parallel.timeout=3", "launcher.start_timeout=60")
SPREAD = (*(each for each in SMALL if not each.startswith("data")), *own(LENGTH), *REPLICATED, *LIMITS, *LENGTH, PACE)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("alone") / "run", *LENGTH)


@pytest.fixture
def run_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))  # where ranks find the data
    with started(tmp_path, 3) as cluster, runs(cluster, tmp_path) as start:
        yield lambda *overrides, **options: start("run", *SPREAD, *overrides, **options)


def causes(running) -> list[str]:
    return [each["cause"] for each in json.loads(running.folder.result.read_text())["restarts"]]


THREE = "launcher.hosts=[10.77.0.1:1,10.77.0.2:1,10.77.0.3:1]"


def kill_a_machine(running) -> None:
    running.cluster.kill(2)
    running.wait_until(lambda: "joins with 1" in running.text(), 90)


def cut_a_link(running) -> None:
    """The machine's replica cannot reach the lighthouse; its agent ends it before it may be started elsewhere."""
    running.cluster.cut(2)
    running.wait_until(lambda: "was lost" in running.text(), 30)
    gone(running.cluster, 2)
    running.wait_for_step(running.last_step() + 10)
    running.cluster.mend(2)
    running.wait_until(lambda: "joins with 1" in running.text(), 90)


def cut_a_link_for_a_moment(running) -> None:
    running.cluster.cut(2)
    time.sleep(2)
    running.cluster.mend(2)


def part_two_machines(running) -> None:
    """Both still reach the parent and its lighthouse, which takes both for members that can exchange something."""
    routes = [(running.cluster.namespace(one), running.cluster.address(other)) for one, other in ((2, 3), (3, 2))]
    for namespace, address in routes:
        subprocess.run(["ip", "-n", namespace, "route", "add", "blackhole", f"{address}/32"], check=True)
    time.sleep(10)
    for namespace, address in routes:
        subprocess.run(["ip", "-n", namespace, "route", "del", "blackhole", f"{address}/32"], check=True)


def kill_a_replica(running) -> None:
    replica = running.find(3, "manyheads: rank 2/3")
    assert {address for address, _ in listening(replica)} <= {"::", running.cluster.address(3)}
    os.kill(replica.pid, signal.SIGKILL)
    running.wait_until(lambda: "replica 2 was killed by SIGKILL" in running.text(), 30)


def kill_the_first_replicas_agent(running) -> None:
    """On the parent's own machine."""
    running.find(1, "launchers.nodes.node_agent").kill()
    running.wait_until(lambda: "joins with 1" in running.text(), 90)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (kill_a_machine, "machine 10.77.0.2 (node2) was lost"),
        (cut_a_link, "have not heard from each other for"),
        (cut_a_link_for_a_moment, None),
        (part_two_machines, None),
        (kill_a_replica, "replica 2 was killed by SIGKILL"),
        (kill_the_first_replicas_agent, "machine 10.77.0.1 (node1) was lost"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_others_continue(run_on, alone, fault, cause):
    running = run_on(THREE)
    running.wait_for_step(50)
    fault(running)
    running.wait_for_more()
    assert running.end() == 0, running.text()
    print(running.text())
    assert cause is None or any(cause in each for each in causes(running))
    assert_equal(alone, running.folder)
    gone(running.cluster)


@pytest.mark.parametrize("inside", ["ddp", "fsdp"])
def test_replicas_of_several_ranks(run_on, alone, inside):
    """A machine is killed, then one of the two ranks on the parent's own."""
    groups = ("parallel.ranks_per_replica=2", f"parallel.inside={inside}")
    running = run_on("launcher.hosts=[10.77.0.1:2,10.77.0.2:2]", *groups)
    running.wait_for_step(50)
    kill_a_machine(running)
    running.wait_for_more()
    os.kill(running.find(1, "manyheads: rank 1/4").pid, signal.SIGKILL)
    running.wait_until(lambda: "replica 0 (rank 1) was killed by SIGKILL" in running.text(), 30)
    assert running.end() == 0, running.text()
    assert_equal(alone, running.folder)
    gone(running.cluster)


def test_machines_join_and_leave_and_join(run_on, alone):
    """The command typed on each machine, on the second one later, and again."""
    typed = ("launcher.nodes=1:2", "launcher.nproc_per_node=1", "launcher.rendezvous=10.77.0.1:29400")
    first = run_on(*typed)
    first.wait_for_step(20)
    second = run_on(*typed, node=2)
    first.wait_until(lambda: "machine node2" in first.text(), 60)
    first.wait_for_step(first.last_step() + 30)
    second.cluster.kill(2)
    first.wait_until(lambda: "was lost" in first.text(), 30)
    third = run_on(*typed, node=2)
    first.wait_until(lambda: first.text().count("joins with 1") == 2, 60)
    assert first.end() == 0, first.text()
    assert third.end(30) == 0, third.text()
    assert_equal(alone, first.folder)
    gone(first.cluster)


def test_a_stop_stops_all_and_resume_continues(run_on, alone):
    running = run_on(THREE)
    running.wait_for_step(100)
    running.find(1, "run.py").terminate()
    assert running.end(60) == 143, running.text()
    gone(running.cluster)
    again = run_on(node=1, command=("-m", "runner", "resume", str(running.folder.path)))
    assert again.end() == 0, again.text()
    assert_equal(alone, again.folder)
    gone(again.cluster)
