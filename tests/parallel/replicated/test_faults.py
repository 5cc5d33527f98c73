"""What torchft's own heartbeat does not notice, and what takes torchft itself away: the run is the undisturbed one."""

import os
import signal

import pytest

from tests.parallel.replicated.faults import lighthouse
from tests.parallel.replicated.runs import IF_TORCHFT, PACE, PACED, assert_equal, replicated, undisturbed

pytestmark = [IF_TORCHFT, pytest.mark.processes, pytest.mark.tail]

LENGTH = (*PACED, "trainer.epochs=40")
HANGS = ("parallel.timeout=1", "launcher.hang_timeout=5", "launcher.nproc_per_node=2")
WAITS = ("parallel.timeout=2", "launcher.hang_timeout=20", "launcher.nproc_per_node=2")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("alone") / "run", *LENGTH)


@pytest.mark.parametrize("replica", [0, 1])
def test_a_replica_that_is_stopped_is_killed_and_restarted(tmp_path, alone, replica):
    stop = lambda pid: os.kill(pid, signal.SIGSTOP)  # noqa: E731
    folder, stopped = replicated(tmp_path / "run", *LENGTH, PACE, *HANGS, kills=1, only=(replica,), hit=stop)
    assert stopped == 1
    assert [f"replica {replica} " in each["cause"] for each in folder.read_result()["restarts"]] == [True]
    assert_equal(alone, folder)


@pytest.mark.parametrize("replica", [0, 1])
def test_a_replica_that_hangs_in_its_data_is_killed_and_restarted(tmp_path, replica):
    hanging = ("data._target_=tests.parallel.replicated.faults.Hanging", f"+data.once={tmp_path / 'once'}")
    data = (*LENGTH, *hanging, f"+data.replica={replica}")
    (tmp_path / "once").touch()
    one = undisturbed(tmp_path / "alone", *data)
    (tmp_path / "once").unlink()
    folder, _ = replicated(tmp_path / "run", *data, PACE, *HANGS)
    assert (tmp_path / "once").exists()
    assert [f"replica {replica} " in each["cause"] for each in folder.read_result()["restarts"]] == [True]
    assert "__getitem__" in folder.rank_log(replica).read_text()  # where it hung
    assert_equal(one, folder)


def test_the_lighthouse_is_restarted_where_it_was(tmp_path, alone):
    folder, killed = replicated(
        tmp_path / "run", *LENGTH, PACE, *WAITS, kills=2, hit=lambda pid: lighthouse(pid).kill()
    )
    assert killed == 2
    assert_equal(alone, folder)


def test_the_lighthouse_dies_together_with_a_replica(tmp_path, alone):
    def both(pid: int) -> None:
        lighthouse(pid).kill()
        os.kill(pid, signal.SIGKILL)

    folder, killed = replicated(tmp_path / "run", *LENGTH, PACE, *WAITS, kills=1, hit=both)
    assert killed == 1
    assert_equal(alone, folder)
