"""The shared disk hangs, is full, read-only, broken or gone: what was saved is whole, and ``resume`` works."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.runner.checkpoint.rank.load import complete
from tests.launchers.conftest import rows
from tests.launchers.nodes.conftest import ENDLESS, gone, runs
from tests.launchers.nodes.disk import Disk, attached, hidden

OUTAGE = 20  # seconds
PER_EPOCH = 29  # updates
TRAINING = (
    *ENDLESS,
    *("parallel=ddp", "parallel.timeout=40", "launcher=torchrun", "launcher.node_timeout=4", "checkpoint.every=20"),
)
FIRST = "error: rank 0 on machine 10.77.0.1 (node1) failed first (exit code 1): "
UNSAID = "so result.json, which records how the run ended, could not be written."


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with attached(tmp_path) as made:
        yield made


@pytest.fixture
def run_on_disk(cluster, disk):
    """Starts runs whose folders are on the shared disk."""
    with runs(cluster, disk.folder) as start:
        yield start


def stopped(running) -> None:
    """Ends a run that trains."""
    os.kill(running.find(1, running.parent).pid, signal.SIGTERM)
    assert running.end(60) == 143, running.text()
    gone(running.cluster, seconds=5)


def resumed(run_on_disk, folder: Path, *, beyond: int) -> None:
    """The run resumes from its last checkpoint and trains on, with every row there, once."""
    saved = complete(folder / "checkpoints" / "last.pt")["progress"]["step"]
    assert saved >= beyond
    again = run_on_disk("run", command=("-m", "runner", "resume", str(folder)))
    again.wait_until(lambda: f"resuming from step {saved}" in again.text(), 100)
    again.wait_for_step(saved + 20)
    stopped(again)
    steps = [int(row["step"]) for row in rows(again.folder.steps)]
    assert steps == [step for step in range(1, steps[-1] + 1) if step % 2 == 0 or step % PER_EPOCH == 0]
    epochs = [int(row["epoch"]) for row in rows(again.folder.epochs)]
    assert epochs == list(range(1, len(epochs) + 1))


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
def test_one_that_hangs_for_a_while(cluster, disk, run_on_disk) -> None:
    """As NFS does: agents and parent go on talking, ranks wait, and all goes on."""
    running = run_on_disk("run", *TRAINING, cluster.hosts(1))
    running.wait_for_step(60)
    reached = running.last_step()
    disk.freeze()
    time.sleep(OUTAGE)
    assert running.process.poll() is None
    disk.thaw()
    running.wait_for_step(reached + 60)
    stopped(running)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("how", "says"),
    [
        (Disk.turn_read_only, "Read-only file system"),
        (Disk.fail, "Input/output error"),
        (Disk.fill, "No space left on device"),
    ],
    ids=["read-only", "failed", "full"],
)
def test_one_that_takes_nothing_any_more(cluster, disk, run_on_disk, how, says: str) -> None:
    """The rank that wrote is named with its machine, though nothing of it can be written there; not its peers."""
    running = run_on_disk("run", *TRAINING, cluster.hosts(1))
    running.wait_for_step(60)
    hurt = time.monotonic()
    how(disk)
    assert running.end(40) == 1, running.text()
    assert time.monotonic() - hurt < 20
    gone(cluster, seconds=10)
    last = running.text().strip().splitlines()[-1]
    assert last.startswith(FIRST)
    assert says in last
    assert str(disk.folder / "run") in last  # which file
    assert "Logging error" not in running.text()
    if how is Disk.fill:
        (disk.folder / "filling").unlink()
    else:
        assert f"{says}, {UNSAID}" in running.text()
        disk.unmount()
        disk.mount()
    resumed(run_on_disk, running.folder.path, beyond=40)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
def test_one_that_a_machine_without_the_first_rank_does_not_see_for_a_while(cluster, disk, run_on_disk) -> None:
    """It writes nothing there, and so nothing happens."""
    running = run_on_disk("run", *TRAINING, cluster.hosts(1))
    running.wait_for_step(60)
    with hidden(cluster, disk.folder, 2):
        time.sleep(OUTAGE)
        reached = running.last_step()
    running.wait_for_step(reached + 60)
    stopped(running)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
def test_one_that_is_gone_for_a_while_ends_the_run(cluster, disk, run_on_disk) -> None:
    running = run_on_disk("run", *TRAINING, cluster.hosts(1))
    running.wait_for_step(60)
    with hidden(cluster, disk.folder):
        assert running.end(40) == 1, running.text()
        gone(cluster, seconds=10)
    last = running.text().strip().splitlines()[-1]
    assert last.startswith(FIRST)
    assert "No such file or directory: " in last
    resumed(run_on_disk, running.folder.path, beyond=40)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
def test_a_restart_waits_for_one_that_is_gone(cluster, disk, run_on_disk) -> None:
    """With ``launcher.max_restarts`` the run itself goes on, once the disk is back."""
    typed = ("launcher.nodes=1:2", "launcher.max_restarts=1", "launcher.rendezvous=10.77.0.1:29400")
    first, second = (run_on_disk("run", *TRAINING, *typed, node=node) for node in (1, 2))
    first.wait_for_step(60)
    with hidden(cluster, disk.folder):
        first.wait_until(lambda: "restarting from the last checkpoint: " in first.text(), 30)
        time.sleep(OUTAGE)
        assert first.process.poll() is None
    reached = first.last_step()
    first.wait_for_step(reached + 40)
    stopped(first)
    assert second.end(10)
    [restart] = first.folder.read_result()["restarts"]
    assert restart["cause"].startswith("rank 0 on machine node1 (10.77.0.1) failed first (exit code 1): ")
