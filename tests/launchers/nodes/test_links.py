"""Links that are slow, lose packets, or come and go: training goes on, and its bits are those of a good link."""

import time

import pytest

from manyheads.launchers.launch import launch, prepare
from tests.launchers.conftest import freeze, rows
from tests.launchers.nodes.conftest import COMMON, gone

LENGTH = ("trainer.max_steps=600", "trainer.epochs=100", "trainer.log_every=2", "trainer.evaluate_every=0")
RUN = ("parallel=ddp", "launcher=torchrun", "launcher.node_timeout=5", "parallel.timeout=30")


def narrow(running) -> None:
    """10 Mbit/s, and a queue that holds a tenth of what an update sends."""
    cluster, reached = running.cluster, running.last_step()
    cluster.narrow(2, rate="10mbit", queue=6000)
    running.wait_for_step(reached + 40)
    assert cluster.widen(2) > 100


def flap(running) -> None:
    """Away for a second, five times, each time for less than ``launcher.node_timeout``."""
    for _ in range(5):
        running.cluster.cut(2)
        time.sleep(1)
        running.cluster.mend(2)
        reached = running.last_step()
        running.wait_for_step(reached + 6)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", [narrow, flap])
def test_training_goes_on(cluster, run_on, tmp_path, how) -> None:
    running = run_on("run", *RUN, *LENGTH, cluster.hosts(1))
    running.wait_for_step(20)
    how(running)
    good = freeze(tmp_path / "good", *COMMON, *LENGTH, "parallel=ddp", "launcher.nproc_per_node=2")
    expected = launch(prepare(good))
    assert running.end() == 0, running.text()
    result = running.folder.read_result()
    assert result["weights_sha256"] == expected["weights_sha256"]
    assert rows(running.folder.steps) == rows(good.steps)
    assert "restarts" not in result
    gone(cluster, seconds=5)
