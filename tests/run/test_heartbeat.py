import os
import subprocess
import sys

import pytest

from manyheads.runner.run.heartbeat import FAILED, FINISHED, RUNNING, STARTING, Heartbeat


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "heartbeat"


def test_a_new_one_is_silent(path):
    heartbeat = Heartbeat.create(path, ranks=3)
    assert heartbeat.ranks == 3
    assert heartbeat.beats() == 0
    assert heartbeat.stop_signal == 0
    assert [heartbeat.state(rank) for rank in range(3)] == [STARTING] * 3
    assert [heartbeat.pid(rank) for rank in range(3)] == [0] * 3


def test_ranks_do_not_touch_each_other(path):
    parent = Heartbeat.create(path, ranks=3)
    ranks = [Heartbeat(path, rank=rank) for rank in range(3)]
    for rank, beats in enumerate((1, 2, 4)):
        for _ in range(beats):
            ranks[rank].beat()
    ranks[0].leave(FINISHED)
    ranks[1].leave(FAILED)
    ranks[2].enter()
    assert parent.beats() == 7
    assert [parent.state(rank) for rank in range(3)] == [FINISHED, FAILED, RUNNING]
    assert [parent.pid(rank) for rank in range(3)] == [0, 0, os.getpid()]


def test_the_request_to_stop_reaches_all(path):
    parent = Heartbeat.create(path, ranks=2)
    ranks = [Heartbeat(path, rank=rank) for rank in range(2)]
    parent.stop_signal = 15
    assert [rank.stop_signal for rank in ranks] == [15, 15]
    ranks[1].stop_signal = 2
    assert parent.stop_signal == 2
    assert parent.beats() == 0


def test_creating_again_forgets_the_attempt_before(path):
    before = Heartbeat.create(path, ranks=2)
    before.beat()
    before.stop_signal = 15
    again = Heartbeat.create(path, ranks=1)
    assert (again.ranks, again.beats(), again.stop_signal) == (1, 0, 0)
    before.beat()  # a rank that was left over writes to the old file
    assert again.beats() == 0


def test_another_process_is_seen(path):
    parent = Heartbeat.create(path, ranks=2)
    code = "import sys; from pathlib import Path; from manyheads.runner.run.heartbeat import Heartbeat"
    code += "; h = Heartbeat(Path(sys.argv[1]), rank=1)"
    code += "; h.enter(); h.beat(); h.beat(); assert h.stop_signal == 2; h.leave(2)"
    parent.stop_signal = 2
    child = subprocess.Popen([sys.executable, "-c", code, str(path)])
    assert child.wait(timeout=30) == 0
    assert parent.beats() == 2
    assert parent.pid(1) == child.pid
    assert parent.state(1) == FINISHED
