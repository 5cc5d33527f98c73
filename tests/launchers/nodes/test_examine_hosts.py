"""``doctor --hosts``: what is found of machines that are there, and of one that is not."""

import subprocess
import sys

import pytest

from tests.launchers.conftest import PROJECT
from tests.launchers.nodes.conftest import gone


def examined(cluster, *hosts: str) -> subprocess.CompletedProcess:
    given = ("--hosts", ",".join(hosts), "--remote-shell", f"{cluster.shell} {{host}}")
    command = cluster.on(1, sys.executable, "-m", "runner", "doctor", *given)
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(200)
def test_machines_that_can_run_together(cluster) -> None:
    done = examined(cluster, "10.77.0.1", "10.77.0.2")
    assert done.returncode == 0, done.stdout + done.stderr
    for node in (1, 2):
        assert f"10.77.0.{node}: host node{node}, address 10.77.0.{node}, python 3." in done.stdout
    assert done.stdout.count("sees this folder yes") == 2
    assert "all-reduce over 2 machines by gloo: 4 bytes in " in done.stdout
    assert not list(PROJECT.glob("manyheads-doctor-*"))
    gone(cluster, 1, 2, seconds=5)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(200)
def test_one_that_cannot_be_reached(cluster) -> None:
    done = examined(cluster, "10.77.0.1", "10.77.0.9")
    assert done.returncode == 3
    assert "10.77.0.1: host node1" in done.stdout
    assert "error: 10.77.0.9: Cannot open network namespace" in done.stdout
    assert "all-reduce" not in done.stdout
    gone(cluster, 1, 2, seconds=5)
